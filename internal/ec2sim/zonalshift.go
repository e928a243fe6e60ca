package ec2sim

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

// zonalShift moves a managed resource's traffic away from a zone for a while.
type zonalShift struct {
	id       string
	resource string
	awayFrom zone
	began    time.Time
	expires  time.Time
	comment  string
	status   string
}

func zonalShiftActions() map[string]action {
	return map[string]action{
		http.MethodGet + " managedresources": {run: (*Server).getManagedResource},
		http.MethodGet + " zonalshifts":      {run: (*Server).listZonalShifts},
		http.MethodPost + " zonalshifts":     {run: (*Server).startZonalShift},
		http.MethodDelete + " zonalshifts":   {run: (*Server).cancelZonalShift},
	}
}

// active lists the shifts of a resource that are under way, by ID.
func (s *Server) activeShifts(resource string) []*zonalShift {
	var found []*zonalShift
	for _, id := range sortedKeys(s.shifts) {
		z := s.shifts[id]
		if z.status == "ACTIVE" && !s.clock.Now().Before(z.expires) {
			z.status = "EXPIRED"
		}
		if z.status == "ACTIVE" && (resource == "" || z.resource == resource) {
			found = append(found, z)
		}
	}
	return found
}

// shiftable says whether the identifier is a cluster of the account.
func (s *Server) shiftable(resource string) bool {
	name, ok := strings.CutPrefix(resource, s.arn("eks", "cluster/"))
	_, exists := s.clusters[name]
	return ok && exists
}

func (s *Server) getManagedResource(c *call) error {
	resource, err := url.PathUnescape(strings.TrimPrefix(c.http.URL.EscapedPath(), "/managedresources/"))
	if err != nil || !s.shiftable(resource) {
		return fail("ResourceNotFoundException", "The resource %s is not managed.", resource)
	}
	weights := map[string]float64{}
	for _, z := range s.net.zones {
		weights[z.id] = 1
	}
	shifts := []map[string]any{}
	for _, z := range s.activeShifts(resource) {
		weights[z.awayFrom.id] = 0
		out := z.answer()
		out["appliedStatus"], out["shiftType"] = "APPLIED", "ZONAL_SHIFT"
		shifts = append(shifts, out)
	}
	c.out = map[string]any{
		"arn":                      resource,
		"name":                     resource[strings.LastIndexByte(resource, '/')+1:],
		"appliedWeights":           weights,
		"zonalShifts":              shifts,
		"autoshifts":               []any{},
		"zonalAutoshiftStatus":     "DISABLED",
		"practiceRunConfiguration": nil,
	}
	return nil
}

func (z *zonalShift) answer() map[string]any {
	return map[string]any{
		"zonalShiftId": z.id, "resourceIdentifier": z.resource, "awayFrom": z.awayFrom.id,
		"startTime": float64(z.began.Unix()), "expiryTime": float64(z.expires.Unix()),
		"comment": z.comment, "status": z.status,
	}
}

func (s *Server) listZonalShifts(c *call) error {
	items := []map[string]any{}
	for _, z := range s.activeShifts(c.http.URL.Query().Get("resourceIdentifier")) {
		items = append(items, z.answer())
	}
	c.out = map[string]any{"items": items}
	return nil
}

func (s *Server) startZonalShift(c *call) error {
	var in struct{ ResourceIdentifier, AwayFrom, ExpiresIn, Comment string }
	if err := c.decode(&in); err != nil {
		return err
	}
	away, ok := s.net.zone(in.AwayFrom)
	life, err := time.ParseDuration(in.ExpiresIn)
	switch {
	case !s.shiftable(in.ResourceIdentifier):
		return fail("ResourceNotFoundException", "The resource %s is not managed.", in.ResourceIdentifier)
	case !ok:
		return fail("ValidationException", "The zone %q is not one of the resource's.", in.AwayFrom)
	case err != nil || life < time.Minute || life > 72*time.Hour:
		return fail("ValidationException", "expiresIn must be between 1m and 72h.")
	case len(s.activeShifts(in.ResourceIdentifier)) > 0:
		return &apiError{http.StatusConflict, "ConflictException", "A zonal shift is already active for this resource."}
	}
	now := s.clock.Now()
	z := &zonalShift{
		id: s.fleetID()[len("fleet-"):], resource: in.ResourceIdentifier, awayFrom: away,
		began: now, expires: now.Add(life), comment: in.Comment, status: "ACTIVE",
	}
	s.shifts[z.id] = z
	c.out = z.answer()
	return nil
}

func (s *Server) cancelZonalShift(c *call) error {
	id := strings.TrimPrefix(c.http.URL.Path, "/zonalshifts/")
	z := s.shifts[id]
	if z == nil {
		return fail("ResourceNotFoundException", "The zonal shift %s does not exist.", id)
	}
	s.activeShifts("")
	if z.status != "ACTIVE" {
		return &apiError{http.StatusConflict, "ConflictException", "The zonal shift is not active."}
	}
	z.status = "CANCELED"
	c.out = z.answer()
	return nil
}
