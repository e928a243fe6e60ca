// Package health remembers how the launches of each NodePool went, and says from
// that how many more may be tried.
//
// A pool whose launches fail is given less and less to do: after each failure
// nothing is launched for a while, twice as long every time, and then one claim
// alone as a probe. The first claim that gets as far as the failed ones didn't
// opens the pool again. So a pool that can't launch creates a handful of claims in
// ten minutes instead of thousands, and other pools never notice.
//
// The same outcomes make the condition NodeRegistrationHealthy of a pool.
package health
