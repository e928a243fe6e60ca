package ec2sim

import (
	"fmt"
	"net/http"
)

// apiError is a refusal as an AWS service words it: a code that clients branch
// on, an HTTP status, and a message for people.
type apiError struct {
	status  int
	code    string
	message string
}

// Error returns code and message.
func (e *apiError) Error() string { return e.code + ": " + e.message }

// fail makes an error with the HTTP status that AWS sends for the code.
func fail(code, format string, args ...any) *apiError {
	return &apiError{status: statusOf(code), code: code, message: fmt.Sprintf(format, args...)}
}

// statusOf follows the error tables of the EC2 and IAM API references: client
// errors are 400 with the exceptions below, server errors 5xx.
func statusOf(code string) int {
	switch code {
	case "DryRunOperation":
		return http.StatusPreconditionFailed
	case "AuthFailure":
		return http.StatusUnauthorized
	case "UnauthorizedOperation", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
		"SignatureDoesNotMatch", "InvalidSignatureException", "InvalidClientTokenId", "UnrecognizedClientException",
		"AccessDenied", "AccessDeniedException":
		return http.StatusForbidden
	case "NoSuchEntity", "ResourceNotFoundException":
		return http.StatusNotFound
	case "EntityAlreadyExists", "DeleteConflict", "LimitExceeded":
		return http.StatusConflict
	case "RequestLimitExceeded", "Unavailable", "ServiceUnavailable":
		return http.StatusServiceUnavailable
	case "InternalError", "InternalFailure", "InternalServerError", "InsufficientInstanceCapacity", "InsufficientCapacity":
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

func missingParameter(name string) *apiError {
	return fail("MissingParameter", "The request must contain the parameter %s", name)
}

func invalidParameter(format string, args ...any) *apiError {
	return fail("InvalidParameterValue", format, args...)
}

func dryRunOperation() *apiError {
	return fail("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
}
