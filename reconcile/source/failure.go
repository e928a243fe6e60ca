package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/kube"
)

// The reasons of conditions and events. They are part of the API.
const (
	reasonApplied       = "Applied"
	reasonProgressing   = "Progressing"
	reasonRetrying      = "ProgressingWithRetry"
	reasonInvalid       = "InvalidCommit"
	reasonFetch         = "FetchFailed"
	reasonAuth          = "AuthenticationFailed"
	reasonSecret        = "SecretNotUsable"
	reasonRepository    = "RepositoryNotUsable"
	reasonVerification  = "VerificationFailed"
	reasonVerified      = "Verified"
	reasonRewritten     = "HistoryRewritten"
	reasonArtifact      = "ArtifactNotReady"
	reasonEvaluation    = "EvaluationFailed"
	reasonContested     = "ContestedObject"
	reasonPruneGuard    = "PruneGuard"
	reasonConflict      = "FieldConflict"
	reasonDependency    = "DependencyNotReady"
	reasonRollout       = "RolloutInProgress"
	reasonIdentity      = "ServiceAccountNotUsable"
	reasonOrphans       = "UnmanagedObjects"
	reasonNoKind        = "KindNotInstalled"
	reasonTerminating   = "ObjectTerminating"
	reasonApply         = "ApplyFailed"
	reasonPruned        = "Pruned"
	reasonPrune         = "PruneFailed"
	reasonDrift         = "ConfigDrift"
	reasonDriftCheck    = "DriftCheckFailed"
	reasonCorrected     = "DriftCorrected"
	reasonOverwritten   = "ChangeOverwritten"
	reasonSettled       = "DriftSettled"
	reasonReportFailed  = "ReportFailed"
	reasonReportBranch  = "ReportBranchIsSource"
	reasonReportWritten = "ReportWritten"
	reasonAdoptFailed   = "AdoptionFailed"
	reasonProposed      = "AdoptionProposed"
	reasonWithdrawn     = "AdoptionWithdrawn"
	reasonAdoptLeft     = "AdoptionLeft"
)

// class says what a failure asks for.
type class uint8

const (
	// retry: the same pass may succeed soon.
	retry class = iota
	// wait: something else must happen first, and will not be hurried.
	wait
	// terminal: a person has to change something.
	terminal
)

// failure is an error with what to make of it.
type failure struct {
	class  class
	reason string
	// after is how long to wait, for the class wait.
	after time.Duration
	err   error
}

// Error returns the cause's text.
func (f *failure) Error() string { return f.err.Error() }

// Unwrap returns the cause.
func (f *failure) Unwrap() error { return f.err }

func terminally(reason string, err error) error {
	return &failure{class: terminal, reason: reason, err: err}
}

func retrying(reason string, err error) error {
	return &failure{class: retry, reason: reason, err: err}
}

func waiting(reason string, after time.Duration, err error) error {
	return &failure{class: wait, reason: reason, after: after, err: err}
}

// classified returns the failure in err, or a retry of the given reason.
func classified(err error, reason string) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return &failure{class: retry, reason: reason, err: err}
}

// gitFailure classifies an error of package git. Credentials and refs get fixed
// on the server's side too, where no event tells of it, so both are tried again,
// but a person has to act all the same.
func gitFailure(err error) error {
	var e *git.Error
	switch {
	case errors.Is(err, git.ErrSignature):
		return terminally(reasonVerification, err)
	case errors.Is(err, git.ErrAuth), errors.Is(err, git.ErrHostKey), errors.Is(err, git.ErrApp):
		return terminally(reasonAuth, err)
	case errors.Is(err, git.ErrNotFound), errors.Is(err, git.ErrRef):
		return terminally(reasonRepository, err)
	case errors.Is(err, git.ErrIdentity), errors.Is(err, git.ErrKnownHosts), errors.Is(err, git.ErrKeyring),
		errors.Is(err, git.ErrCA), errors.Is(err, git.ErrClientCert), errors.Is(err, git.ErrProxy):
		return terminally(reasonSecret, err)
	case errors.As(err, &e) && e.Permanent():
		return terminally(reasonRepository, err)
	}
	return retrying(reasonFetch, err)
}

// kubeFailure classifies an error of package kube.
func kubeFailure(reason string, err error) error {
	var invalid *kube.InvalidError
	var kind *kube.NoKindError
	switch {
	case errors.As(err, &kind):
		return waiting(reasonNoKind, kindDelay, err)
	case errors.As(err, &invalid):
		return terminally(reasonInvalid, err)
	case errors.Is(err, context.DeadlineExceeded):
		return retrying(reason, fmt.Errorf("the API server did not answer in time; raise spec.timeout if it is only slow: %w", context.DeadlineExceeded))
	}
	return retrying(reason, err)
}

// kindDelay is the pause before a CRD is looked for again. Installing one takes
// a person or another controller; a client's discovery is cached for ten seconds.
const kindDelay = 15 * time.Second

// terminatingDelay is the pause before an object that is being deleted is looked
// at again. Draining the nodes of a pool takes minutes.
const terminatingDelay = 10 * time.Second
