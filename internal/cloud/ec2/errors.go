package ec2

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/coppice-dev/coppice/internal/cloud"
)

// code returns AWS's own code of an error, or "" if AWS didn't answer.
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// classify marks an error that the same request would meet again. Everything else
// (throttling, a server's fault, a lost connection) is left to be retried.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var api smithy.APIError
	if errors.As(err, &api) && isTerminal(api.ErrorCode(), api.ErrorMessage()) {
		return &cloud.TerminalError{Err: err}
	}
	return err
}

// failed names what was tried, without the SDK's request ids: those differ at
// every attempt and would make conditions and events flap.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		return fmt.Errorf("%s: %w", what, classify(&apiError{code: api.ErrorCode(), message: clean(api.ErrorMessage()), cause: err}))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// apiError is AWS's answer without what differs between attempts.
type apiError struct {
	code, message string
	cause         error
}

func (e *apiError) Error() string {
	if e.message == "" {
		return e.code
	}
	return e.code + ": " + e.message
}

func (e *apiError) Unwrap() error { return e.cause }

// clean cuts the encoded authorization message off, which is long, differs at
// every attempt, and can only be read by who may call sts:DecodeAuthorizationMessage.
func clean(message string) string {
	message, _, _ = strings.Cut(message, " Encoded authorization failure message:")
	return strings.TrimSpace(message)
}

// isTerminal says whether the code stands for a request that has to change, or
// for rights that somebody has to give. Codes are those of EC2's error reference:
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
func isTerminal(code, message string) bool {
	switch code {
	case "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure",
		"OptInRequired", "Blocked", "InvalidClientTokenId", "UnrecognizedClientException",
		"SignatureDoesNotMatch", "OperationNotPermitted",
		"MissingParameter", "UnknownParameter", "InvalidParameter", "InvalidParameterCombination",
		"InvalidInput", "ValidationError", "ValidationException",
		"InvalidBlockDeviceMapping", "InvalidUserData.Malformed", "InvalidAMIID.NotFound",
		"InvalidAMIID.Malformed", "InvalidSubnetID.NotFound", "InvalidGroup.NotFound",
		"InvalidSecurityGroupID.NotFound", "InvalidSnapshot.NotFound",
		"TagPolicyViolation", "TagLimitExceeded", "LimitExceeded", "MalformedPolicyDocument":
		return true
	case "InvalidParameterValue":
		// A profile that was made a moment ago isn't known everywhere yet.
		return !strings.Contains(strings.ToLower(message), "instance profile")
	}
	return false
}

// aboutProfile says whether EC2 refused a launch because it doesn't know the instance
// profile.
func aboutProfile(err error) bool {
	var api *apiError // also an item of a fleet's error set is one
	return errors.As(err, &api) && api.code == "InvalidParameterValue" && !isTerminal(api.code, api.message)
}

// isAboutOne says whether a code of TerminateInstances may be for the sake of one of
// the instances: its ID, its state, its protection, or its tags, by which rights are given.
func isAboutOne(code string) bool {
	switch code {
	case codeInstanceNotFound, codeInstanceBadID, "IncorrectInstanceState", "IncorrectState", "InvalidState",
		"OperationNotPermitted", "UnsupportedOperation", codeUnauthorized:
		return true
	}
	return false
}

// isCapacity says whether a code of CreateFleet's error set means that the
// offering can't be had now, whether for want of machines, quota or addresses.
func isCapacity(code string) bool {
	switch code {
	case "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
		"InsufficientCapacityOnHost", "InsufficientCapacity", "UnfulfillableCapacity", "Unsupported",
		"MaxSpotInstanceCountExceeded", "MaxFleetCountExceeded", "SpotMaxPriceTooLow",
		"VcpuLimitExceeded", "InstanceLimitExceeded", codeNoAddresses,
		"ReservationCapacityExceeded", "InvalidCapacityReservationState.Unavailable", codeNoSpotRole:
		return true
	}
	return false
}

// Codes that are acted on by name.
const (
	codeNoAddresses      = "InsufficientFreeAddressesInSubnet"
	codeNoSpotRole       = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
	codeTemplateNotFound = "InvalidLaunchTemplateName.NotFoundException"
	codeTemplateIDGone   = "InvalidLaunchTemplateId.NotFound"
	codeTemplateExists   = "InvalidLaunchTemplateName.AlreadyExistsException"
	codeTokenMismatch    = "IdempotentParameterMismatch"
	codeInstanceNotFound = "InvalidInstanceID.NotFound"
	codeInstanceBadID    = "InvalidInstanceID.Malformed"
	codeDryRun           = "DryRunOperation"
	codeUnauthorized     = "UnauthorizedOperation"
	codeNoSuchEntity     = "NoSuchEntity"
	codeEntityExists     = "EntityAlreadyExists"
	codeNoParameter      = "ParameterNotFound"
	codeNoCluster        = "ResourceNotFoundException"
	codeNoReservation    = "InvalidCapacityReservationId.NotFound"
	codeBadReservation   = "InvalidCapacityReservationId.Malformed"
)
