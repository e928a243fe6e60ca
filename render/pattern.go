package render

// patternMeaning says in words what a pattern of the schemas asks for, or ""
// for a pattern that it doesn't know. Nobody should have to read the regular
// expression of a Kubernetes quantity to find a typing error.
func patternMeaning(pattern string) string {
	switch pattern {
	case `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`:
		return "a quantity, such as 500m, 4 or 16Gi"
	case `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`:
		return "a label key, such as team or example.com/team"
	case `^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`:
		return "a label value: letters, digits, -, _ and ., beginning and ending with a letter or digit"
	case `^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`:
		return "an object's name: lower-case letters, digits, - and ., beginning and ending with a letter or digit"
	case `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`:
		return "a name: lower-case letters, digits and -, beginning and ending with a letter or digit"
	case `^(([0-9]+(s|m|h))+|Never)$`:
		return "a duration in whole hours, minutes and seconds, such as 30s or 1h30m, or Never"
	case `^([0-9]+(s|m|h))+$`:
		return "a duration in whole hours, minutes and seconds, such as 30s or 1h30m"
	case `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`:
		return "a duration, such as 30s or 1.5h"
	case `^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$`:
		return "a duration in hours and minutes, such as 8h or 1h30m"
	case `^((100|[0-9]{1,2})%|[0-9]+)$`:
		return "a number of nodes or a percentage up to 100%"
	case `^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$`:
		return `a cron schedule of five fields, such as "0 9 * * mon-fri", or one of @hourly, @daily, @weekly, @monthly, @yearly`
	case `subnet-[0-9a-z]+`:
		return "a subnet's id, such as subnet-0a1b2c3d"
	case `sg-[0-9a-z]+`:
		return "a security group's id, such as sg-0a1b2c3d"
	case `ami-[0-9a-z]+`:
		return "an image's id, such as ami-0a1b2c3d"
	case `^[0-9]{12}$`:
		return "an AWS account's number of 12 digits"
	}
	return ""
}
