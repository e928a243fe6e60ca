package kube

import "strings"

// OneLine bounds a message for a condition or an event, where 200 characters and a
// single line are what people can read.
func OneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:197], "") + "..."
	}
	return s
}
