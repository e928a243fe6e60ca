package ec2sim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/catalogue"
)

func pricingActions() map[string]action {
	return map[string]action{"GetProducts": {run: (*Server).getProducts, free: true}}
}

type priceFilter struct{ Field, Type, Value string }

// getProducts lists the on-demand prices of Linux instances: shared tenancy for
// virtual machines, dedicated for bare metal, which is how the price list has
// them. The list covers every region of the catalogue.
func (s *Server) getProducts(c *call) error {
	var in struct {
		ServiceCode string
		Filters     []priceFilter
		MaxResults  int
		NextToken   string
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	if in.ServiceCode != "AmazonEC2" {
		return fail("InvalidParameterException", "Service code %q is not in the price list.", in.ServiceCode)
	}
	if in.MaxResults < 0 || in.MaxResults > 100 {
		return fail("InvalidParameterException", "MaxResults must be between 1 and 100.")
	}
	if in.MaxResults == 0 {
		in.MaxResults = 100
	}
	var found []product
	for _, region := range s.cat.Regions() {
		if !mayBeIn(region, in.Filters) {
			continue
		}
		for _, t := range s.cat.Types() {
			price, ok := s.cat.Price(t.Name, region)
			if !ok || price.OnDemand == 0 {
				continue
			}
			p := newProduct(t, region, price.OnDemand)
			ok, err := p.passes(in.Filters)
			if err != nil {
				return err
			}
			if ok {
				found = append(found, p)
			}
		}
	}
	shown, next, err := cut(found, func(p product) string { return p.attributes["regionCode"] + " " + p.attributes["instanceType"] }, in.NextToken, in.MaxResults)
	if err != nil {
		return err
	}
	list := []string{}
	for _, p := range shown {
		list = append(list, p.json())
	}
	out := map[string]any{"FormatVersion": "aws_v1", "PriceList": list}
	if next != "" {
		out["NextToken"] = next
	}
	c.out = out
	return nil
}

// mayBeIn saves looking through regions that a filter excludes as a whole.
func mayBeIn(region string, filters []priceFilter) bool {
	for _, f := range filters {
		if f.Field == "regionCode" && f.Type == "TERM_MATCH" && !strings.EqualFold(f.Value, region) {
			return false
		}
	}
	return true
}

type product struct {
	family     string
	attributes map[string]string
	micro      int64
}

func newProduct(t catalogue.Type, region string, micro int64) product {
	p := product{family: "Compute Instance", micro: micro, attributes: map[string]string{
		"capacitystatus":     "Used",
		"currentGeneration":  map[bool]string{true: "Yes", false: "No"}[t.CurrentGeneration],
		"instanceType":       t.Name,
		"licenseModel":       "No License required",
		"locationType":       "AWS Region",
		"marketoption":       "OnDemand",
		"memory":             strconv.FormatFloat(float64(t.MemoryMiB)/1024, 'f', -1, 64) + " GiB",
		"networkPerformance": t.NetworkPerformance,
		"operatingSystem":    "Linux",
		"operation":          "RunInstances",
		"preInstalledSw":     "NA",
		"regionCode":         region,
		"servicecode":        "AmazonEC2",
		"servicename":        "Amazon Elastic Compute Cloud",
		"tenancy":            "Shared",
		"vcpu":               strconv.Itoa(t.VCPU),
	}}
	if t.BareMetal {
		p.family, p.attributes["tenancy"] = "Compute Instance (bare metal)", "Dedicated"
	}
	return p
}

// field returns an attribute by its name, whose case the price list ignores:
// clients ask for serviceCode where the attribute is servicecode.
func (p product) field(name string) (string, bool) {
	if name == "productFamily" {
		return p.family, true
	}
	if v, ok := p.attributes[name]; ok {
		return v, true
	}
	for k, v := range p.attributes {
		if strings.EqualFold(k, name) {
			return v, true
		}
	}
	return "", false
}

// passes compares as the price list does, without regard to case.
func (p product) passes(filters []priceFilter) (bool, error) {
	for _, f := range filters {
		value, ok := p.field(f.Field)
		switch f.Type {
		case "TERM_MATCH", "EQUALS":
			ok = ok && strings.EqualFold(value, f.Value)
		case "ANY_OF":
			ok = ok && containsFold(strings.Split(f.Value, ","), value)
		case "NONE_OF":
			ok = !containsFold(strings.Split(f.Value, ","), value)
		case "CONTAINS":
			ok = ok && strings.Contains(strings.ToLower(value), strings.ToLower(f.Value))
		default:
			return false, fail("InvalidParameterException", "Filter type %q is not known.", f.Type)
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

func containsFold(values []string, want string) bool {
	for _, v := range values {
		if strings.EqualFold(strings.TrimSpace(v), want) {
			return true
		}
	}
	return false
}

// json writes one entry of the list, which is JSON inside a JSON string. The
// codes are made up but stable; JRTCKXETXF is the real one of on-demand terms.
func (p product) json() string {
	sku := strings.ToUpper(fmt.Sprintf("%016x", skuHash(p.attributes["regionCode"]+p.attributes["instanceType"])))
	term := sku + ".JRTCKXETXF"
	rate := term + ".6YS6EN2CT7"
	data, err := json.Marshal(map[string]any{
		"product": map[string]any{"productFamily": p.family, "attributes": p.attributes, "sku": sku},
		"terms": map[string]any{"OnDemand": map[string]any{term: map[string]any{
			"offerTermCode": "JRTCKXETXF",
			"sku":           sku,
			"effectiveDate": catalogue.Get().Date() + "T00:00:00Z",
			"priceDimensions": map[string]any{rate: map[string]any{
				"unit": "Hrs", "rateCode": rate, "beginRange": "0", "endRange": "Inf", "appliesTo": []string{},
				"description":  "per On Demand Linux " + p.attributes["instanceType"] + " Instance Hour",
				"pricePerUnit": map[string]string{"USD": fmt.Sprintf("%d.%010d", p.micro/1e6, p.micro%1e6*1e4)},
			}},
		}}},
		"serviceCode": "AmazonEC2",
	})
	if err != nil {
		panic("marshal product: " + err.Error())
	}
	return string(data)
}

func skuHash(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}
