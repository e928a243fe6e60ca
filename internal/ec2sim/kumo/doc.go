// Package kumo holds a test alone: it runs the same SDK calls against the
// simulator and against an independent emulator, github.com/sivchari/kumo, and
// compares what the client sees. It is a module of its own so that nobody else
// depends on that emulator.
package kumo
