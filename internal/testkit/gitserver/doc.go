// Package gitserver is a Git server that speaks smart HTTP and SSH, for tests and
// for the sandbox. It serves bare repositories from one folder to any client: git
// itself, go-git, and whatever else speaks protocol version 0.
//
// It needs no git program. Clones may be shallow, fetches negotiate, a push
// names the value that it replaces and is refused when another push came first.
// It is not built for the open internet: it holds one password, and objects of a
// fetch are collected in memory.
//
//	srv, err := gitserver.New(gitserver.Config{Dir: dir, Username: "coppice", Password: secret})
//	err = srv.Create("fleet")            // served as /fleet.git
//	stop := srv.Watch(func(p gitserver.Push) { … })
package gitserver
