package render

// The codes of this package's findings. They are stable: a code is never given
// to another rule.
const (
	// CodeSyntax marks text that isn't CUE, or that doesn't compile.
	CodeSyntax = "CUE001"
	// CodeImport marks an import that can't be resolved.
	CodeImport = "CUE002"
	// CodeConflict marks values that contradict each other or fail to evaluate.
	CodeConflict = "CUE003"
	// CodeIncomplete marks a field whose value isn't concrete.
	CodeIncomplete = "CUE004"
	// CodeModule marks a cue.mod that can't be used.
	CodeModule = "CUE005"
	// CodeEvaluator marks a tree that CUE's evaluator gave up on.
	CodeEvaluator = "CUE006"

	// CodeYAML marks text that isn't YAML, or YAML that no JSON can stand for.
	CodeYAML = "YAML001"
	// CodeYAMLDuplicate marks a field that is set twice.
	CodeYAMLDuplicate = "YAML002"

	// CodeTree marks a file or folder that is refused or can't be read.
	CodeTree = "TREE001"
	// CodeNoCluster marks a tree that holds no cluster, or not the one asked for.
	CodeNoCluster = "TREE002"
	// CodeMisnamedField marks a field of a cluster's package that nothing reads.
	CodeMisnamedField = "TREE003"
	// CodeDuplicateObject marks a second object of the same kind and name.
	CodeDuplicateObject = "TREE004"
	// CodeTooLarge marks an object that no API server would store.
	CodeTooLarge = "TREE005"
	// CodeUnread marks a file that stands among those that are read, and isn't.
	CodeUnread = "TREE006"

	// CodeNotCompared marks a file of live objects of which none was of use.
	CodeNotCompared = "LIVE001"

	// CodeUnknownField marks a field that the kind doesn't have.
	CodeUnknownField = "SCH001"
	// CodeType marks a value of the wrong type.
	CodeType = "SCH002"
	// CodeEnum marks a value that isn't among the listed ones.
	CodeEnum = "SCH003"
	// CodeConstraint marks a value outside of its bounds or pattern.
	CodeConstraint = "SCH004"
	// CodeRequired marks a required field that is missing.
	CodeRequired = "SCH005"
	// CodeIdentity marks an apiVersion, kind or metadata.name that contradicts
	// the place where the object is declared.
	CodeIdentity = "SCH006"
	// CodeCondition marks a value that another field of the object rules out, or
	// a field that another one asks for.
	CodeCondition = "SCH008"
	// CodeUnknownKind marks an object of a kind that Coppice has no schema for.
	CodeUnknownKind = "SCH007"

	// CodeDoubtful marks a value that is allowed but can't have been meant.
	CodeDoubtful = "SCH009"

	// CodeReference marks a reference to an object that isn't declared.
	CodeReference = "REF001"
	// CodeCatalogue marks an instance type, zone or region that isn't known.
	CodeCatalogue = "REF002"
	// CodeLabel marks a label that nothing sets, whose name is nearly a well-known one.
	CodeLabel = "REF003"

	// CodeSugar marks options beyond the API that can't be compiled.
	CodeSugar = "OPT001"

	// CodeAPI marks what an API server would refuse by the CRD's schema.
	CodeAPI = "API001"
	// CodeRule marks what an API server would refuse by one of the CRD's CEL rules.
	CodeRule = "API002"
	// CodePruned marks a field that an API server would drop without a word.
	CodePruned = "API003"
)

// Codes says what each code means.
func Codes() map[string]string {
	return map[string]string{
		CodeSyntax:          "the text isn't CUE, or doesn't compile",
		CodeImport:          "an import leads nowhere",
		CodeConflict:        "values contradict each other, or an expression fails",
		CodeIncomplete:      "a value isn't concrete",
		CodeModule:          "`cue.mod` can't be used",
		CodeEvaluator:       "CUE's evaluator gave up",
		CodeYAML:            "the text isn't YAML, or says what JSON can't",
		CodeYAMLDuplicate:   "a field is set twice",
		CodeTree:            "a file is refused: a link, a submodule, too large",
		CodeNoCluster:       "there is no such cluster",
		CodeMisnamedField:   "nothing reads a field, whose name is nearly one of the four",
		CodeDuplicateObject: "a second object of the same kind and name",
		CodeTooLarge:        "an object is too large for an API server",
		CodeUnread:          "a file isn't read",
		CodeNotCompared:     "`--against` compared nothing",
		CodeUnknownField:    "the kind has no such field",
		CodeType:            "a value has the wrong type",
		CodeEnum:            "a value isn't among the choices",
		CodeConstraint:      "a value is out of bounds, or doesn't have the right form",
		CodeRequired:        "a required field is missing",
		CodeIdentity:        "`apiVersion`, `kind` or `metadata.name` contradicts the place of the object",
		CodeCondition:       "a value that another field rules out, or a field that another one asks for",
		CodeUnknownKind:     "there is no schema for the kind",
		CodeDoubtful:        "a value that is allowed but can't have been meant",
		CodeReference:       "the class of a pool isn't declared, or no provider here serves it; a warning where the package declares no class at all",
		CodeCatalogue:       "an instance type, family, zone or region isn't known",
		CodeLabel:           "nothing sets a label, whose name is nearly a well-known one",
		CodeSugar:           "an option below `coppice` can't be compiled",
		CodeAPI:             "the CRD's schema refuses the object",
		CodeRule:            "one of the CRD's rules refuses the object",
		CodePruned:          "an API server would drop the field",
	}
}
