package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// job is what a CI system says about the run that a command is part of. Fields that it
// doesn't say are empty.
type job struct {
	// system is the CI system's name, "" for a plain shell.
	system string
	// kind, api and repository say which forge to speak to, as forge.Config has them.
	kind, api, repository string
	// number is the pull request's, 0 if there is none. fork says that its head is
	// another repository's.
	number int
	fork   bool
	// head is the commit that a pull request, or a queue's group, holds, "" for whatever is
	// checked out. base is the commit to compare with.
	head, base string
	// made is the commit that the forge made for this run by merging head into base, "" if
	// it didn't. mergesBase says that the CI system merges base into head after it has
	// checked head out.
	made       string
	mergesBase bool
	// queue says that the run is of a merge queue's group of pull requests: there is a
	// status to set, and nothing to comment in. silent says why there is neither.
	queue  bool
	silent string
	// token may write, self is who it stands for if the forge can't be asked.
	token, username, self string
	// url leads to the run's log, summary is a file that the CI system shows.
	url, summary string
	// annotates says that the system reads workflow commands from the output.
	annotates bool
}

// readJob finds out which CI system runs us. read reads a file.
func readJob(env func(string) string, read func(string) ([]byte, error)) (job, error) {
	switch {
	case env("GITEA_ACTIONS") == "true" || env("FORGEJO_ACTIONS") == "true":
		return actionsJob(env, read, "Gitea Actions", "gitea")
	case env("GITHUB_ACTIONS") == "true":
		return actionsJob(env, read, "GitHub Actions", "github")
	case env("GITLAB_CI") == "true":
		return gitlabJob(env)
	case env("BITBUCKET_BUILD_NUMBER") != "":
		return bitbucketJob(env)
	}
	return job{token: env("COPPICE_TOKEN")}, nil
}

// actionsEvent is the part of a pull request's event that is needed. Gitea's is made
// after GitHub's.
type actionsEvent struct {
	PullRequest *struct {
		Number    int    `json:"number"`
		MergeBase string `json:"merge_base"` // Gitea alone
		Head      struct {
			SHA  string `json:"sha"`
			Repo *struct {
				FullName string `json:"full_name"`
			} `json:"repo"`
		} `json:"head"`
		Base struct {
			SHA string `json:"sha"`
		} `json:"base"`
	} `json:"pull_request"`
	// MergeGroup is what GitHub's merge queue asks about.
	MergeGroup *struct {
		HeadSHA string `json:"head_sha"`
		BaseSHA string `json:"base_sha"`
	} `json:"merge_group"`
	Before string `json:"before"`
}

func actionsJob(env func(string) string, read func(string) ([]byte, error), system, kind string) (job, error) {
	j := job{
		system: system, kind: kind, annotates: true, summary: env("GITHUB_STEP_SUMMARY"),
		token: cmp.Or(env("COPPICE_TOKEN"), env("GITHUB_TOKEN"), env("GITEA_TOKEN")),
	}
	if server, repo := env("GITHUB_SERVER_URL"), env("GITHUB_REPOSITORY"); server != "" && repo != "" {
		j.repository = strings.TrimSuffix(server, "/") + "/" + repo
		if id := env("GITHUB_RUN_ID"); id != "" {
			j.url = j.repository + "/actions/runs/" + id
			if n := env("GITHUB_RUN_NUMBER"); kind == "gitea" && n != "" {
				j.url = j.repository + "/actions/runs/" + n
			}
		}
	}
	if kind == "github" {
		j.api = env("GITHUB_API_URL")
	}
	// The token of a job can't ask who it is. A token of one's own can, or stands for
	// somebody else at least.
	if env("COPPICE_TOKEN") == "" {
		j.self = map[string]string{"github": "github-actions[bot]", "gitea": "gitea-actions"}[kind]
	}
	file := env("GITHUB_EVENT_PATH")
	if file == "" {
		return j, nil
	}
	text, err := read(file)
	if err != nil {
		return j, fmt.Errorf("read the event that started this job: %w", err)
	}
	var e actionsEvent
	if err := json.Unmarshal(text, &e); err != nil {
		return j, fmt.Errorf("read the event that started this job, %s: %w", file, err)
	}
	if g := e.MergeGroup; g != nil {
		j.queue, j.head, j.base = true, g.HeadSHA, g.BaseSHA
		return j, nil
	}
	pr := e.PullRequest
	if pr == nil {
		if strings.Trim(e.Before, "0") != "" {
			j.base = e.Before
		}
		return j, nil
	}
	j.number, j.head, j.base = pr.Number, pr.Head.SHA, cmp.Or(pr.MergeBase, pr.Base.SHA)
	j.fork = pr.Head.Repo == nil || pr.Head.Repo.FullName != env("GITHUB_REPOSITORY")
	if strings.HasSuffix(env("GITHUB_REF"), "/merge") {
		j.made = env("GITHUB_SHA")
	}
	return j, nil
}

func gitlabJob(env func(string) string) (job, error) {
	j := job{
		system: "GitLab CI", kind: "gitlab", api: env("CI_API_V4_URL"), url: env("CI_JOB_URL"),
		repository: cmp.Or(env("CI_MERGE_REQUEST_PROJECT_URL"), env("CI_PROJECT_URL")),
		base:       env("CI_MERGE_REQUEST_DIFF_BASE_SHA"),
		// The token of a job may not comment.
		token: cmp.Or(env("COPPICE_TOKEN"), env("GITLAB_TOKEN")),
	}
	if j.base == "" && strings.Trim(env("CI_COMMIT_BEFORE_SHA"), "0") != "" {
		j.base = env("CI_COMMIT_BEFORE_SHA")
	}
	n, err := number(env("CI_MERGE_REQUEST_IID"))
	if err != nil {
		return j, fmt.Errorf("CI_MERGE_REQUEST_IID: %w", err)
	}
	if n == 0 {
		return j, nil
	}
	j.number, j.head = n, env("CI_COMMIT_SHA")
	j.fork = env("CI_MERGE_REQUEST_SOURCE_PROJECT_ID") != env("CI_MERGE_REQUEST_PROJECT_ID")
	// Pipelines of merged results alone have this one.
	if source := env("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"); source != "" {
		j.head, j.made, j.base = source, env("CI_COMMIT_SHA"), cmp.Or(env("CI_MERGE_REQUEST_TARGET_BRANCH_SHA"), j.base)
	}
	if env("CI_MERGE_REQUEST_EVENT_TYPE") == "merge_train" {
		// Its commit may have been rebased or squashed, and holds those ahead of it too.
		j.head, j.made, j.silent = "", "", "the pipeline is a merge train's, whose commit holds other merge requests too"
	}
	return j, nil
}

func bitbucketJob(env func(string) string) (job, error) {
	j := job{
		system: "Bitbucket Pipelines", kind: "bitbucket", repository: "https://bitbucket.org/" + env("BITBUCKET_REPO_FULL_NAME"),
		base:  env("BITBUCKET_PR_DESTINATION_COMMIT"),
		token: cmp.Or(env("COPPICE_TOKEN"), env("BITBUCKET_TOKEN")), username: env("BITBUCKET_USERNAME"),
	}
	if n := env("BITBUCKET_BUILD_NUMBER"); n != "" {
		j.url = j.repository + "/pipelines/results/" + n
	}
	n, err := number(env("BITBUCKET_PR_ID"))
	if err != nil {
		return j, fmt.Errorf("BITBUCKET_PR_ID: %w", err)
	}
	if j.number = n; n > 0 {
		// Pipelines check the source out and merge the destination into it.
		j.head, j.mergesBase = env("BITBUCKET_COMMIT"), true
	}
	// Pull requests of forks run in the fork, without a number of ours.
	return j, nil
}

func number(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.Atoi(text)
}
