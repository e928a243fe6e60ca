package ec2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"

	"github.com/coppice-dev/coppice/internal/catalogue"
)

// How often the market is read again. New types and list prices appear a few times
// a month; spot prices move by a few percent a day.
const (
	machinesEvery = 12 * time.Hour
	pricesEvery   = 12 * time.Hour
	spotsEvery    = time.Hour
)

// machineList is what the region sells.
type machineList struct {
	machines []machine // sorted by name
	// zones holds the zones that sell a type, by its name, sorted. They are IDs if
	// byZoneID is set; if everywhere is, nothing is known of them.
	zones                map[string][]string
	byZoneID, everywhere bool
}

// spotPool is where a spot price is made.
type spotPool struct{ instanceType, zone string }

// loadMachines lists the types and where each is sold: two paged calls, at once.
func (p *Provider) loadMachines(ctx context.Context) (machineList, error) {
	var list machineList
	var typesErr, zonesErr error
	var wg sync.WaitGroup
	wg.Go(func() { list.machines, typesErr = p.describeTypes(ctx) })
	wg.Go(func() { list.zones, zonesErr = p.describeOfferings(ctx) })
	wg.Wait()
	return list, errors.Join(typesErr, zonesErr)
}

func (p *Provider) describeTypes(ctx context.Context) ([]machine, error) {
	facts := catalogue.Get()
	var out []machine
	pages := ec2.NewDescribeInstanceTypesPaginator(p.ec2, &ec2.DescribeInstanceTypesInput{
		Filters: []ec2types.Filter{
			filter("supported-virtualization-type", "hvm"),
			filter("processor-info.supported-architecture", "x86_64", "arm64"),
		},
		MaxResults: new(int32(100)),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, failed("list instance types", err)
		}
		for _, t := range page.InstanceTypes {
			if m, ok := machineOf(t); ok {
				m.complete(facts)
				out = append(out, m)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("list instance types: EC2 named none in %s", p.region)
	}
	slices.SortFunc(out, func(a, b machine) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(out, func(a, b machine) bool { return a.name == b.name }), nil
}

func (p *Provider) describeOfferings(ctx context.Context) (map[string][]string, error) {
	out := map[string][]string{}
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(p.ec2, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: ec2types.LocationTypeAvailabilityZone,
		MaxResults:   new(int32(1000)),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, failed("list where instance types are sold", err)
		}
		for _, o := range page.InstanceTypeOfferings {
			out[string(o.InstanceType)] = append(out[string(o.InstanceType)], deref(o.Location))
		}
	}
	for _, zones := range out {
		slices.Sort(zones)
	}
	return out, nil
}

// loadPrices returns the on-demand price of each type, from the Pricing API where it
// has one and from the catalogue where it hasn't.
func (p *Provider) loadPrices(ctx context.Context) (map[string]int64, error) {
	out := cataloguePrices(catalogue.Get(), p.region)
	if p.cfg.IsolatedVPC {
		return out, nil
	}
	var shared, metal map[string]int64
	var sharedErr, metalErr error
	var wg sync.WaitGroup
	wg.Go(func() { shared, sharedErr = p.listPrices(ctx, "Shared", "Compute Instance") })
	wg.Go(func() { metal, metalErr = p.listPrices(ctx, "Dedicated", "Compute Instance (bare metal)") })
	wg.Wait()
	if err := errors.Join(sharedErr, metalErr); err != nil {
		return nil, err
	}
	maps.Copy(out, shared)
	maps.Copy(out, metal)
	return out, nil
}

func (p *Provider) listPrices(ctx context.Context, tenancy, family string) (map[string]int64, error) {
	match := func(field, value string) pricingtypes.Filter {
		return pricingtypes.Filter{Type: pricingtypes.FilterTypeTermMatch, Field: &field, Value: &value}
	}
	out := map[string]int64{}
	pages := pricing.NewGetProductsPaginator(p.pricing, &pricing.GetProductsInput{
		ServiceCode: new("AmazonEC2"),
		Filters: []pricingtypes.Filter{
			match("regionCode", p.region),
			match("serviceCode", "AmazonEC2"),
			match("productFamily", family),
			match("tenancy", tenancy),
			match("operatingSystem", "Linux"),
			match("preInstalledSw", "NA"),
			match("capacitystatus", "Used"),
			match("marketoption", "OnDemand"),
		},
		MaxResults: new(int32(100)),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return out, failed("list on-demand prices", err)
		}
		for _, product := range page.PriceList {
			name, price, err := readProduct(product)
			if err != nil {
				return out, fmt.Errorf("list on-demand prices: %w", err)
			}
			if price > 0 {
				out[name] = price
			}
		}
	}
	return out, nil
}

// readProduct reads one entry of a price list: the type and its price per hour, 0
// if the entry has none in dollars (China's are in yuan).
func readProduct(text string) (string, int64, error) {
	var product struct {
		Product struct {
			Attributes struct {
				InstanceType string `json:"instanceType"`
			} `json:"attributes"`
		} `json:"product"`
		Terms struct {
			OnDemand map[string]struct {
				PriceDimensions map[string]struct {
					PricePerUnit map[string]string `json:"pricePerUnit"`
				} `json:"priceDimensions"`
			} `json:"OnDemand"`
		} `json:"terms"`
	}
	if err := json.Unmarshal([]byte(text), &product); err != nil {
		return "", 0, fmt.Errorf("read a price: %w", err)
	}
	name := product.Product.Attributes.InstanceType
	var highest int64
	for _, term := range product.Terms.OnDemand {
		for _, dimension := range term.PriceDimensions {
			text, ok := dimension.PricePerUnit["USD"]
			if !ok {
				continue
			}
			price, err := microUSD(text)
			if err != nil {
				return "", 0, fmt.Errorf("price of %s: %w", name, err)
			}
			highest = max(highest, price)
		}
	}
	return name, highest, nil
}

// loadSpotPrices returns the price of each spot pool now.
func (p *Provider) loadSpotPrices(ctx context.Context) (map[spotPool]int64, error) {
	now := p.clock.Now()
	out := map[spotPool]int64{}
	newest := map[spotPool]time.Time{}
	pages := ec2.NewDescribeSpotPriceHistoryPaginator(p.ec2, &ec2.DescribeSpotPriceHistoryInput{
		ProductDescriptions: []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"},
		StartTime:           &now, // which gives one record a pool: the price in force
		MaxResults:          new(int32(1000)),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, failed("list spot prices", err)
		}
		for _, r := range page.SpotPriceHistory {
			pool := spotPool{string(r.InstanceType), deref(r.AvailabilityZone)}
			at := deref(r.Timestamp)
			if _, known := out[pool]; known && at.Before(newest[pool]) {
				continue
			}
			price, err := microUSD(deref(r.SpotPrice))
			if err != nil {
				return nil, fmt.Errorf("list spot prices: %s in %s: %w", pool.instanceType, pool.zone, err)
			}
			out[pool], newest[pool] = price, at
		}
	}
	return out, nil
}

func filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: &name, Values: values}
}
