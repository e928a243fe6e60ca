package stack

// NodeClass is an EC2NodeClass named default that works in the sandbox's account as it
// is found.
const NodeClass = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: KarpenterNodeRole
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: "true"}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: "true"}}]
`
