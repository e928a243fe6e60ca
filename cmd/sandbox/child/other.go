//go:build !linux

package child

import "syscall"

// dieWithParent makes no difference where the system offers nothing for it: a
// child is then left behind when this process is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
