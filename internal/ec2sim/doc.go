// Package ec2sim is an EC2 for one region and one account that runs in the
// process that starts it: an http.Handler that speaks the wire protocols of EC2,
// SSM, SQS, IAM, STS, EKS and Pricing well enough that an unmodified AWS SDK
// client cannot tell.
//
//	sim, err := ec2sim.New(ec2sim.Config{Region: "us-west-2", BootDelay: 2 * time.Second})
//	srv := httptest.NewServer(sim) // AWS_ENDPOINT_URL=srv.URL
//	defer sim.Close()
//
// All services share one port. A request is routed by the service in the scope
// of its SigV4 signature, then by Action, X-Amz-Target or path.
//
// Behind the protocols stands a small deterministic world: instance types and
// prices from internal/catalogue, a finite number of instances of each type in
// each zone and market, instances that boot and end after a delay, spot prices
// that move. Its clock and its seed are given, so the same calls at the same
// times give the same answers. A Scenario changes the world while it runs, and
// the control API under /_sim/ lets a person or a test do so by hand.
//
// Only the sandbox and tests import this package; the product never does.
package ec2sim
