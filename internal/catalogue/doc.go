// Package catalogue holds what is known about EC2 instance types without asking
// EC2: size, architecture, accelerators, network and disk limits, where each
// type is sold, and what it cost on the day the catalogue was made.
//
// The simulator answers from it. The product uses it where an answer from EC2 is
// missing or would come too late: for a price before the first Pricing call, for
// a name that was misspelt, for a bandwidth that no API gives. What EC2 and
// Pricing say at run time wins over the catalogue.
//
// The data is one embedded file, written by the generator in gen from two
// published Go modules and one table of network bandwidth; Sources and Date say
// which. It is decoded on first use and never changed: callers share it and do
// not alter it. The package imports the standard library alone, reads no clock
// and no network.
package catalogue
