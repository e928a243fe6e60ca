package ec2sim

import (
	"encoding/base64"
	"net/http"
	"strings"
)

func eksActions() map[string]action {
	return map[string]action{http.MethodGet + " clusters": {run: (*Server).eksClusters}}
}

// eksClusters answers GET /clusters and GET /clusters/NAME.
func (s *Server) eksClusters(c *call) error {
	name := strings.Trim(strings.TrimPrefix(c.http.URL.Path, "/clusters"), "/")
	if name == "" {
		c.out = map[string]any{"clusters": sortedKeys(s.clusters)}
		return nil
	}
	cluster, ok := s.clusters[name]
	if !ok {
		return fail("ResourceNotFoundException", "No cluster found for name: %s.", name)
	}
	var subnets []string
	for _, sub := range s.net.subnets {
		subnets = append(subnets, sub.id)
	}
	network := map[string]any{"serviceIpv4Cidr": cluster.ServiceCIDR, "ipFamily": "ipv4"}
	if strings.Contains(cluster.ServiceCIDR, ":") {
		network = map[string]any{"serviceIpv6Cidr": cluster.ServiceCIDR, "ipFamily": "ipv6"}
	}
	c.out = map[string]any{"cluster": map[string]any{
		"name":                    cluster.Name,
		"arn":                     s.arn("eks", "cluster/"+cluster.Name),
		"createdAt":               float64(s.began.Unix()),
		"version":                 cluster.Version,
		"platformVersion":         "eks.1",
		"endpoint":                cluster.Endpoint,
		"status":                  "ACTIVE",
		"certificateAuthority":    map[string]any{"data": base64.StdEncoding.EncodeToString(cluster.CA)},
		"kubernetesNetworkConfig": network,
		"resourcesVpcConfig": map[string]any{
			"subnetIds":              subnets,
			"securityGroupIds":       []string{},
			"clusterSecurityGroupId": s.net.groups[0].id,
			"vpcId":                  s.net.vpcID,
			"endpointPublicAccess":   true,
			"endpointPrivateAccess":  true,
		},
		"accessConfig": map[string]any{"authenticationMode": "API"},
		"tags":         map[string]string{},
	}}
	return nil
}
