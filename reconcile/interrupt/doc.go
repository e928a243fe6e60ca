// Package interrupt takes away nodes whose instances the cloud is about to end, as it
// says in messages: spot instances that are taken back, scheduled maintenance,
// instances that somebody stops; and those that its status checks find bad.
//
// A message's effect is that the instance's NodeClaim is deleted. That fences the node,
// drains it, and has its pods planned for, all at the same moment. No budget, pause or
// annotation is asked: the instance ends anyway. Of an instance that is stopped,
// terminated or fails its checks the drain isn't waited for. A message is acknowledged
// after it took effect, and one that comes twice finds the claim deleted.
package interrupt
