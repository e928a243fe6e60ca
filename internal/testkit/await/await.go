// Package await waits for the cluster to come to a state, by watching it.
//
// Nothing sleeps and nothing polls: a condition is looked at once for what is
// there, and again whenever an object of the list changes. It is for tests and
// the sandbox's demo.
package await

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Condition looks at a state and says whether it is the one that is waited for.
// What it has seen, in a few words, is told to whoever waited in vain.
type Condition[T client.Object] func(objs []T) (done bool, seen string)

// Objects waits until cond holds for the objects that a list with these options
// would return, sorted by namespace and name. Neither they nor the slice are to be
// changed or kept.
// It returns an error that ends with what was last seen when ctx ends first.
func Objects[T client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, cond Condition[T], opts ...client.ListOption) error {
	seen := "nothing"
	for {
		done, err := watchOnce(ctx, c, list, cond, &seen, opts...)
		switch {
		case done:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w; last seen: %s", context.Cause(ctx), seen)
		case errors.Is(err, errEnded):
			// The server ends watches from time to time.
		case err != nil:
			return err
		}
	}
}

// errEnded says that the watch has to be opened anew.
var errEnded = errors.New("watch ended")

func watchOnce[T client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, cond Condition[T], seen *string, opts ...client.ListOption) (bool, error) {
	list, ok := list.DeepCopyObject().(client.ObjectList)
	if !ok {
		return false, errors.New("the list does not copy itself")
	}
	if err := c.List(ctx, list, opts...); err != nil {
		return false, fmt.Errorf("list: %w", err)
	}
	// Kept sorted, as a condition may be looked at thousands of times.
	var state []T
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		obj, ok := o.(T)
		if !ok {
			return fmt.Errorf("the list holds %T", o)
		}
		state = append(state, obj)
		return nil
	}); err != nil {
		return false, err
	}
	slices.SortFunc(state, byName)
	check := func() (done bool) {
		done, *seen = cond(state)
		return done
	}
	if check() {
		return true, nil
	}

	w, err := c.Watch(ctx, list, append(slices.Clone(opts), &client.ListOptions{Raw: rawFrom(list)})...)
	if err != nil {
		return false, fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case e, open := <-w.ResultChan():
			if !open {
				return false, errEnded
			}
			if e.Type == watch.Error {
				if err := apierrors.FromObject(e.Object); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
					return false, errEnded
				} else if err != nil {
					return false, fmt.Errorf("watch: %w", err)
				}
			}
			obj, ok := e.Object.(T)
			if !ok {
				continue
			}
			at, found := slices.BinarySearchFunc(state, obj, byName)
			switch {
			case e.Type == watch.Deleted && found:
				state = slices.Delete(state, at, at+1)
			case e.Type == watch.Deleted:
			case found:
				state[at] = obj
			default:
				state = slices.Insert(state, at, obj)
			}
			if check() {
				return true, nil
			}
		}
	}
}

// Object waits until cond holds for one object. The condition gets the zero value
// of T while there is none.
func Object[T client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, key types.NamespacedName, cond func(obj T) (done bool, seen string)) error {
	opts := []client.ListOption{client.MatchingFields{"metadata.name": key.Name}}
	if key.Namespace != "" {
		opts = append(opts, client.InNamespace(key.Namespace))
	}
	return Objects(ctx, c, list, func(objs []T) (bool, string) {
		var obj T
		if len(objs) > 0 {
			obj = objs[0]
		}
		return cond(obj)
	}, opts...)
}

// byName orders objects by namespace and name.
func byName[T client.Object](a, b T) int {
	return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

// rawFrom makes a watch start where the list ended.
func rawFrom(list client.ObjectList) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
}
