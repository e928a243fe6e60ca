package render

import (
	"io/fs"
	"path"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas"
)

// Result is what there is to say about one cluster.
type Result struct {
	Bundle   Bundle
	Findings diag.List
	// Judged is what the tree's policies say, if somebody applied them: [Each] doesn't. An
	// API server's verdict isn't to be merged with it.
	Judged diag.List
	// Rules describe those that Judged has findings of, by their codes.
	Rules map[string]diag.Rule
	// Validated is what an API server would say, if somebody asked: [Each] doesn't.
	Validated diag.List
	// Files are those of the tree that the cluster's package consists of, with the
	// packages that it imports, in order. Files that are embedded aren't among them.
	Files []string
}

// Progress is told how the rendering of clusters goes on.
type Progress struct {
	// Begun is told that the next cluster is begun.
	Begun func()
	// Object gets each object of it as soon as it is checked, in no order that could be
	// relied on, while others are still evaluated. It may be nil.
	Object func(Object)
	// Done gets the result, of which the bundle holds the objects once more; if it holds
	// none, what Object got doesn't count.
	Done func(Result)
}

// Each renders clusters as [Render] does, one after the other. Nothing is told at the
// same time as something else. What clusters have in common is read, parsed and compiled
// once, unless alone says that each is to be loaded by itself.
func Each(fsys fs.FS, clusters []string, alone bool, p Progress) {
	s := &session{definitions: schemas.CUE(), fsys: fsys, seen: p.Object}
	if len(clusters) > 1 && !alone {
		s.prepare(clusters)
	}
	for _, c := range clusters {
		p.Begun()
		s.files = nil
		var r Result
		r.Bundle, r.Findings = s.render(c)
		r.Files = s.files
		p.Done(r)
		if s.objects += len(r.Bundle.Objects); s.objects > maxShared {
			s.forget()
		}
	}
}

// maxShared is how many objects are evaluated in one context. CUE keeps all that
// was evaluated in a context in memory, some 50 KiB for each object, for as long as
// there is the context; a new one compiles again what the clusters share.
const maxShared = 500

// session renders the clusters of one tree. It isn't safe for concurrent use.
type session struct {
	definitions, fsys fs.FS
	prepared          *prepared
	// files are those of the cluster that was loaded last.
	files   []string
	ctx     *cue.Context
	checker *checker
	// objects counts what was evaluated in ctx.
	objects int
	// seen, if it isn't nil, gets each object that is checked.
	seen func(Object)
}

// prepared holds the packages of clusters that were loaded together.
type prepared struct {
	tree      *tree
	instances map[string]*build.Instance
	files     map[string][]string
	index     map[ast.Node]*written
}

// prepare loads the packages of clusters together, those that nothing is wrong with.
// Others are left to be loaded by themselves, so that what is said about them
// doesn't depend on their neighbours.
func (s *session) prepare(clusters []string) {
	defer func() {
		if recover() != nil {
			// Whatever it was: it comes again with the cluster that it is about.
			s.prepared = nil
		}
	}()
	p := &prepared{tree: newTree(s.fsys), instances: map[string]*build.Instance{}, files: map[string][]string{}, index: map[ast.Node]*written{}}
	if p.tree.mountModules(s.definitions) != nil {
		return
	}
	var packages []string
	names := map[string]string{}
	for _, c := range clusters {
		dir, _, findings := clusterDir(s.fsys, c)
		if findings != nil {
			continue
		}
		name, findings := p.tree.packageName(dir)
		if findings != nil {
			continue
		}
		names[path.Join("/", dir)] = name
		packages = append(packages, "./"+dir+":"+name)
	}
	instances := p.tree.instances(packages...)
	if len(p.tree.refused) > 0 {
		return
	}
	for _, inst := range instances {
		name, ok := names[inst.Dir]
		if !ok || inst.Err != nil {
			continue
		}
		dir := path.Join(".", inst.Dir[1:])
		if p.tree.importFindings(dir, name) == nil {
			p.instances[dir], p.files[dir] = inst, p.tree.files
		}
	}
	s.prepared = p
}

// load evaluates the package in a folder. Without an error among the findings the
// value can be looked into, though parts of it may be erroneous.
func (s *session) load(dir string) (*evaluator, cue.Value, diag.List) {
	if s.ctx == nil {
		s.ctx = newContext()
	}
	if p := s.prepared; p != nil && p.instances[dir] != nil {
		inst := p.instances[dir]
		v := s.ctx.BuildInstance(inst)
		if len(p.tree.refused) > 0 {
			// An embedded file: whose it is has to be seen anew.
			s.prepared = nil
		} else if inst.Err == nil {
			s.files = p.files[dir]
			return newEvaluator(p.tree, dir, inst, p.index), v, nil
		}
	}
	t := newTree(s.fsys)
	if findings := t.mountModules(s.definitions); findings != nil {
		return nil, cue.Value{}, findings
	}
	v, inst, findings := t.loadPackage(s.ctx, dir)
	s.files = t.files
	if inst == nil {
		return nil, v, findings
	}
	return newEvaluator(t, dir, inst, map[ast.Node]*written{}), v, findings
}

// schemas returns the checker, which all clusters of the context share.
func (s *session) schemas() (*checker, error) {
	if s.checker == nil {
		c, err := newChecker(s.definitions)
		if err != nil {
			return nil, err
		}
		s.checker = c
	}
	return s.checker, nil
}

// forget gives up what was evaluated so far.
func (s *session) forget() { s.ctx, s.checker, s.objects = nil, nil, 0 }
