package child

import "syscall"

// dieWithParent makes a child end when this process does, however it does.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
