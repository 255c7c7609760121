package config

import (
	"maps"
	"regexp"
	"time"
)

// limit is what one key alone must satisfy. The decoder checks it, and the
// JSON Schema and the key table show it, so that the three cannot disagree.
type limit struct {
	enum     []string       // allowed words, of the value or of each list item
	min, max int64          // of a number; max 0: no upper bound
	shortest time.Duration  // of a duration
	longest  time.Duration  // of a duration; 0: no upper bound
	pattern  *regexp.Regexp // of a text or of each list item
	shape    string         // what the pattern means, for the message; holds the fix
	glob     bool           // each list item is a pattern of Match
	empty    bool           // list items or map values may be empty
}

var (
	serverIDPattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	tokenIDPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	hashPattern     = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	schemePattern   = regexp.MustCompile(`^[a-z][a-z0-9+.-]{1,63}$`)
	clientIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	claimPattern    = regexp.MustCompile(`^[^.\s]+(\.[^.\s]+)*$`)
	prefixPattern   = regexp.MustCompile(`^[A-Za-z0-9:._-]{1,64}$`)
	envNamePattern  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerPattern   = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
)

const day = 24 * time.Hour

// limits gives the limit of a key by its path with * for a map key and [] for
// a list item, e.g. servers.*.transport or guard.rules[].action.
func limits() map[string]limit {
	all := map[string]limit{
		"auth.mode":                           {enum: []string{"oidc", "none"}},
		"auth.groups_claim":                   {pattern: claimPattern, shape: "is not the path of a claim; write a name or names joined by dots, like groups or realm_access.roles"},
		"auth.clock_skew":                     {longest: 5 * time.Minute},
		"auth.session_max_age":                {shortest: time.Minute, longest: 90 * day},
		"auth.service_tokens[].id":            {pattern: tokenIDPattern, shape: "has a character that is not allowed or is longer than 64; use letters, digits, dots, dashes and underscores, like ci-deploy"},
		"auth.service_tokens[].hash":          {pattern: hashPattern, shape: `must be "sha256:" and 64 lower-case hexadecimal digits; make a token and its hash with: mcp-portal token <id>`},
		"auth.service_tokens[].previous_hash": {pattern: hashPattern, shape: `must be "sha256:" and 64 lower-case hexadecimal digits; make it with: mcp-portal token --rotate <id>`},
		"auth.accept":                         {enum: []string{"portal", "idp"}},
		"auth.tokens.access":                  {shortest: time.Second, longest: day},
		"auth.tokens.refresh":                 {shortest: time.Minute, longest: 365 * day},
		"auth.tokens.grant":                   {shortest: time.Minute, longest: 365 * day},
		"auth.tokens.reuse_grace":             {longest: day},
		"auth.clients.redirect_hosts":         {glob: true},
		"auth.clients.redirect_schemes":       {pattern: schemePattern, shape: "is not a private-use scheme; write its name without ://, like cursor or com.example.app"},
		"auth.clients.static[].id":            {pattern: clientIDPattern, shape: "has a character that is not allowed or is longer than 100; use letters, digits, dots, dashes and underscores, like company-agent"},
		"auth.clients.static[].secret_hash":   {pattern: hashPattern, shape: `must be "sha256:" and 64 lower-case hexadecimal digits; hash the secret with: printf %s "$SECRET" | sha256sum`},
		"auth.clients.static[].consent":       {enum: []string{"always", "never"}},
		"auth.workloads[].id":                 {pattern: tokenIDPattern, shape: "has a character that is not allowed or is longer than 64; use letters, digits, dots, dashes and underscores, like deploy-job"},
		"servers.*.transport":                 {enum: []string{"auto", "streamable-http", "sse", "stdio"}},
		"servers.*.operations.include":        {glob: true},
		"servers.*.operations.exclude":        {glob: true},
		"servers.*.operations.refresh":        {shortest: time.Second, longest: 30 * day},
		"servers.*.sessions":                  {enum: []string{"session", "user", "shared"}},
		"servers.*.command":                   {empty: true},
		"servers.*.env":                       {empty: true},
		"servers.*.connect_timeout":           {shortest: time.Millisecond, longest: 10 * time.Minute},
		"servers.*.call_ceiling":              {shortest: time.Millisecond, longest: day},
		"servers.*.call_timeout":              {shortest: time.Millisecond, longest: day},
		"store.prefix":                        {pattern: prefixPattern, shape: "has a character that is not allowed or is longer than 64; use letters, digits and : . _ - like mcp-portal:"},
		"code.mode":                           {enum: []string{"opt_in", "off", "default_on", "enforced"}},
		"code.workers":                        {min: 0, max: 256},
		"code.max_workers":                    {min: 1, max: 1024},
		"code.reuse":                          {enum: []string{"same-user", "never"}},
		"code.require":                        {enum: []string{"seccomp", "landlock", "rlimits", "no_new_privs", "uid", "oom", "dumpable", "nice", "parent_death", "environment", "descriptors"}},
		"code.wall_time":                      {shortest: 100 * time.Millisecond, longest: time.Hour},
		"code.cpu_time":                       {shortest: 100 * time.Millisecond, longest: time.Hour},
		"code.memory_mb":                      {min: 32, max: 16384},
		"code.max_calls":                      {min: 1, max: 100000},
		"code.parallel":                       {min: 1, max: 256},
		"code.max_source":                     {min: 1024, max: 16 << 20},
		"code.max_call_result":                {min: 1024, max: 256 << 20},
		"code.max_arguments":                  {min: 1024, max: 64 << 20},
		"code.max_value":                      {min: 1024, max: 8 << 20}, // what the store keeps of one value
		"code.max_content":                    {min: 0, max: 64 << 20},
		"code.max_logs":                       {min: 0, max: 16 << 20},
		"code.result_tokens":                  {min: 100, max: 1000000},
		"code.runs_per_user":                  {min: 1, max: 1000},
		"code.queue_per_user":                 {min: 0, max: 10000},
		"code.paused_per_user":                {min: 1, max: 1000},
		"code.paused_in_all":                  {min: 1, max: 1000},
		"code.paused_for":                     {shortest: time.Second, longest: day},
		"catalog.poll":                        {shortest: 100 * time.Millisecond, longest: day},
		"catalog.name_max":                    {min: 40, max: 64},
		"catalog.pin":                         {enum: []string{"off", "warn", "review"}},
		"servers.*.pin":                       {enum: []string{"off", "warn", "review"}},
		"limits.connect_timeout":              {shortest: time.Millisecond, longest: 10 * time.Minute},
		"limits.call_timeout":                 {shortest: time.Millisecond, longest: day},
		"limits.stall":                        {shortest: time.Second, longest: time.Hour},
		"limits.call_ceiling":                 {shortest: time.Millisecond, longest: day},
		"limits.body":                         {min: 1024, max: 1 << 30},
		"limits.message":                      {min: 1024, max: 1 << 30},
		"limits.calls_per_user":               {min: 1, max: 1000000},
		"limits.sessions":                     {min: 1, max: 1000000},
		"limits.session_idle":                 {shortest: time.Second, longest: 90 * day},
		"limits.drain":                        {longest: 10 * time.Minute},
		"log.level":                           {enum: []string{"debug", "info", "warn", "error"}},
		"log.format":                          {enum: []string{"text", "json"}},
		"servers.*.auth.type":                 {enum: []string{AuthNone, AuthOAuth, AuthClientCredentials, AuthTokenExchange, AuthIDJAG}},
		"servers.*.auth.catalog":              {enum: []string{"user", "shared"}},
		"servers.*.auth.assertion_audience":   {enum: []string{"issuer", "token_endpoint"}},
		"auth.assertion_audience":             {enum: []string{"token_endpoint", "issuer"}},
		"servers.*.auth.subject":              {enum: []string{"access_token", "id_token"}},
	}
	maps.Copy(all, guardLimits())
	return all
}
