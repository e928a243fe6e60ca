// Package testkit gives tests real counterparts: a Kubernetes API server, the EC2
// simulator and a Git server, each on 127.0.0.1 and stopped when the test ends.
// Only tests import it.
//
// [Sandbox] starts the whole sandbox as a process of its own: a control plane
// whose machines become nodes. [Git] and [EC2] start single parts in the test's
// process, in milliseconds, for tests that need no cluster. The packages below
// this one don't depend on testing, so that the sandbox can use them too.
package testkit
