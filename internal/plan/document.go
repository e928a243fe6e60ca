package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Kind and APIVersion are at the top of every plan that is written as JSON.
const (
	Kind       = "Plan"
	APIVersion = "coppice.dev/v1alpha1"
)

// Plan says what applying a commit would do. It holds for the commit and the live
// resource versions that it names, and for no others.
type Plan struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Cluster is the folder of clusters/ that is planned for, "" for the only one.
	Cluster string `json:"cluster"`
	// Commit is what is planned, empty if the tree isn't in Git. Edited says that the
	// tree holds more than the commit does.
	Commit string `json:"commit,omitempty"`
	Edited bool   `json:"edited,omitempty"`
	// Against is what it is compared with.
	Against Against `json:"against"`
	// Summary counts.
	Summary Counts `json:"summary"`
	// Changes are what the commit does, sorted by object.
	Changes []Change `json:"changes"`
	// Drift is what of the changed objects isn't as it was applied, sorted by object and
	// field. It exists now, whatever becomes of the commit.
	Drift []Drifted `json:"drift"`
	// Fleet is what becomes of nodes, nil if the cluster isn't known.
	Fleet *Fleet `json:"fleet,omitempty"`
	// Market is what the pools that change may launch, of a plan without a cluster, sorted
	// by pool.
	Market []Market `json:"market,omitempty"`
	// Refused says why the source won't apply the commit, whatever else is in the plan.
	Refused []string `json:"refused,omitempty"`
	// Left says which fields the commit sets without effect, as a rule of the source
	// leaves them to others.
	Left []string `json:"left,omitempty"`
	// Notes say what the plan leaves open and what it rests on.
	Notes []string `json:"notes"`
}

// Against is what a plan compares a commit with.
type Against struct {
	// Kind is cluster, snapshot, commit, or nothing for a cluster without objects.
	Kind string `json:"kind"`
	// Commit is what was applied last, or the commit that is compared with.
	Commit string `json:"commit,omitempty"`
	// Source is the NodeSource that applies the commit, as namespace/name.
	Source string `json:"source,omitempty"`
	// At is when the cluster was looked at.
	At time.Time `json:"at,omitzero"`
}

// Kinds of Against.
const (
	AgainstCluster  = "cluster"
	AgainstSnapshot = "snapshot"
	AgainstCommit   = "commit"
	AgainstNothing  = "nothing"
)

// Counts sums up what a plan changes.
type Counts struct {
	Create int `json:"create"`
	Update int `json:"update"`
	Delete int `json:"delete"`
	// Unchanged counts the declared objects that stay as they are.
	Unchanged int `json:"unchanged"`
	// Drift counts fields.
	Drift int `json:"drift"`
}

// Drifted is a Difference as a plan writes it.
type Drifted struct {
	Object ID     `json:"object"`
	File   string `json:"file,omitempty"`
	// Path is empty for an object that is missing.
	Path      string    `json:"path,omitempty"`
	Git       Value     `json:"git,omitzero"`
	Live      Value     `json:"live,omitzero"`
	Manager   string    `json:"manager,omitempty"`
	Operation string    `json:"operation,omitempty"`
	When      time.Time `json:"when,omitzero"`
}

// MarshalJSON writes the four parts that name an object.
func (id ID) MarshalJSON() ([]byte, error) {
	return json.Marshal(idJSON(id))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (id *ID) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*idJSON)(id))
}

type idJSON struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// New makes a plan of changes. declared is how many objects the commit declares.
func New(cluster string, against Against, declared int, changes []Change, drift []Difference) *Plan {
	p := &Plan{APIVersion: APIVersion, Kind: Kind, Cluster: cluster, Against: against, Changes: changes, Drift: []Drifted{}, Notes: []string{}}
	if changes == nil {
		p.Changes = []Change{}
	}
	for _, c := range changes {
		switch c.Action {
		case Create:
			p.Summary.Create++
		case Update:
			p.Summary.Update++
		case Delete:
			p.Summary.Delete++
		}
	}
	p.Summary.Unchanged = declared - p.Summary.Create - p.Summary.Update
	p.Summary.Drift = len(drift)
	for _, d := range drift {
		p.Drift = append(p.Drift, Drifted{
			Object: d.Object, File: d.File, Path: d.Field, Git: d.Git, Live: d.Live, Manager: d.Manager, Operation: d.Operation, When: d.When,
		})
	}
	return p
}

// Empty reports whether applying the commit changes no object.
func (p *Plan) Empty() bool { return len(p.Changes) == 0 }

// Silent reports whether there is nothing to say: no object changes, and nothing that the
// commit sets is refused or left to others.
func (p *Plan) Silent() bool { return p.Empty() && len(p.Refused)+len(p.Left) == 0 }

// Counts is what the plan does to objects in one line without a name or anything live in
// it, as for a commit status: "1 to create, 2 to change, 0 to delete".
func (p *Plan) Counts() string {
	if p.Empty() {
		return "no changes"
	}
	return fmt.Sprintf("%d to create, %d to change, %d to delete", p.Summary.Create, p.Summary.Update, p.Summary.Delete)
}

// Headline is Counts with what becomes of nodes: "1 to create, 2 to change, 0 to delete;
// 12 of 40 nodes to go; $3.10/h to $2.80/h".
func (p *Plan) Headline() string {
	text := p.Counts()
	if !p.Empty() && p.Fleet != nil {
		text += "; " + p.Fleet.headline()
	}
	return text
}

// WriteJSON writes the plan as indented JSON.
func (p *Plan) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(p); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	return nil
}
