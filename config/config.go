package config

import "time"

// Config is one portal.yaml after loading: defaults filled in, references
// resolved, validated. It is immutable once Load has returned it.
type Config struct {
	// Path is the file it came from; not a key of the file.
	Path string `yaml:"-"`

	// Warnings are findings that do not stop the portal but that its admin
	// should know: an expired service token, a credential sent over plain
	// http. Each has the form of an Error's text. Not a key of the file.
	Warnings []string `yaml:"-"`

	// sources are the files it was read from, with fingerprints of their
	// content, so that WatchFrom knows what is new. A fingerprint of a short
	// secret can be guessed, so it does not print itself either.
	sources map[string]Secret

	// places are where the values stand in the file, by path.
	places map[string]position

	Name    string            `yaml:"name"`    // shown on the home page and to clients
	Listen  string            `yaml:"listen"`  // host:port of the HTTP listener
	URL     string            `yaml:"url"`     // public origin of the portal, e.g. https://portal.example.com
	Hosts   []string          `yaml:"hosts"`   // further Host header values accepted besides those of url and listen
	Origins []string          `yaml:"origins"` // further Origin header values accepted besides that of url
	Auth    Auth              `yaml:"auth"`
	Servers map[string]Server `yaml:"servers"` // by server id
	Guard   Guard             `yaml:"guard"`
	Store   Store             `yaml:"store"`
	Audit   Audit             `yaml:"audit"`
	Code    Code              `yaml:"code"`
	Catalog Catalog           `yaml:"catalog"`
	Limits  Limits            `yaml:"limits"`
	Log     Log               `yaml:"log"`
}

// Auth says who may use the portal and how identity is proven.
type Auth struct {
	Mode          string            `yaml:"mode"`               // "oidc" or "none" (development: loopback only)
	Issuer        string            `yaml:"issuer"`             // OIDC issuer URL of the company IdP
	Audience      []string          `yaml:"audience"`           // accepted aud values; default: the portal's /mcp URL
	ClientID      string            `yaml:"client_id"`          // browser sign-in for the portal's own pages
	ClientSecret  Secret            `yaml:"client_secret"`      // of client_id
	PrivateKey    Secret            `yaml:"private_key"`        // in place of client_secret: key in PEM with which the portal proves itself (private_key_jwt, RFC 7523); of several the first signs
	PrivateKeyID  string            `yaml:"private_key_id"`     // kid of private_key, if the identity provider gave it one; default its thumbprint (RFC 7638)
	AssertionAud  string            `yaml:"assertion_audience"` // whom a proof by private_key names: "token_endpoint" (default), "issuer"
	Scopes        []string          `yaml:"scopes"`             // asked for at browser sign-in; default openid profile email
	LoginParams   map[string]string `yaml:"login_parameters"`   // further parameters of the sign-in at the IdP, such as access_type: offline
	GroupsClaim   string            `yaml:"groups_claim"`       // dotted path, default "groups"
	ClockSkew     time.Duration     `yaml:"clock_skew"`         // how far clocks may differ where tokens begin and end, default 30s
	SessionMaxAge time.Duration     `yaml:"session_max_age"`    // browser session lifetime, default 12h
	AllowGroups   []string          `yaml:"allow_groups"`       // if set, only members may use the portal at all
	Admins        []string          `yaml:"admins"`             // groups whose members see every server's status
	DevID         string            `yaml:"-"`                  // principal id of that user; empty: "dev". For the command line, which acts as others
	DevUser       string            `yaml:"dev_user"`           // mode none: the one user, default dev@localhost
	DevGroups     []string          `yaml:"dev_groups"`         // mode none: that user's groups
	ServiceTokens []ServiceToken    `yaml:"service_tokens"`     // machines

	Accept         []string   `yaml:"accept"`          // whose access tokens /mcp takes: "portal" (the portal signs clients in itself, in front of the IdP), "idp" (clients sign in at the IdP); default portal with client_id, else idp
	Tokens         Tokens     `yaml:"tokens"`          // lifetimes of what the portal issues
	Clients        Clients    `yaml:"clients"`         // which MCP clients may sign people in through the portal
	Workloads      []Workload `yaml:"workloads"`       // machines that bring a token of another issuer, such as Kubernetes or GitHub Actions
	EncryptionKeys []Secret   `yaml:"encryption_keys"` // seal credentials in the store, "id:base64" as printed by mcp-portal key; the first seals, all open; default: one is made and kept in the store
	Proxies        []string   `yaml:"proxies"`         // addresses of the reverse proxies in front: from there the last entry of X-Forwarded-For that is no proxy says who calls, for the limits of sign-in, the log and from of service tokens; from nobody else
	PrivateHosts   []string   `yaml:"private_hosts"`   // what may be contacted for sign-in of clients and upstreams besides public https: origins, hosts, networks such as 10.1.0.0/16
}

// Tokens are the lifetimes of what the portal issues to MCP clients.
type Tokens struct {
	Access     time.Duration `yaml:"access"`      // of an access token, default 15m
	Refresh    time.Duration `yaml:"refresh"`     // after so long without use a client must sign in again, default 720h
	Grant      time.Duration `yaml:"grant"`       // after so long a client must sign in again in any case, default 2160h
	ReuseGrace time.Duration `yaml:"reuse_grace"` // how long a refresh token that was used may be used again, since clients refresh in parallel; later ends the sign-in; default 30m
}

// Clients says which MCP clients may sign people in through the portal. A
// person confirms each client on a page of the portal in any case.
type Clients struct {
	Register          *bool    `yaml:"register"`           // clients may register themselves (RFC 7591), default true
	MetadataDocuments *bool    `yaml:"metadata_documents"` // clients may be known by the URL of their metadata document, default true
	RedirectHosts     []string `yaml:"redirect_hosts"`     // hosts that https redirect URIs may lead to, patterns; empty: any. Loopback is always possible
	RedirectSchemes   []string `yaml:"redirect_schemes"`   // private-use schemes that redirect URIs may have, as editors use them
	Static            []Client `yaml:"static"`             // clients known by an id of the admin's choice
}

// Client is an MCP client that the admin registered.
type Client struct {
	ID         string   `yaml:"id"`          // client_id
	Name       string   `yaml:"name"`        // shown to people, default its id
	SecretHash string   `yaml:"secret_hash"` // "sha256:" + hex of its client_secret; empty: a public client
	Redirects  []string `yaml:"redirects"`   // redirect URIs; the port of a loopback address may vary
	IDJAG      bool     `yaml:"id_jag"`      // it may bring assertions of the IdP (ID-JAG) in place of a person's sign-in; needs secret_hash
	Consent    string   `yaml:"consent"`     // "always" (default): people confirm each sign-in; "never": for clients that the company itself runs
}

// Workload lets machines in by tokens of another issuer than the IdP.
type Workload struct {
	ID       string              `yaml:"id"`       // principal is "svc:<id>"
	Issuer   string              `yaml:"issuer"`   // issuer URL, e.g. https://token.actions.githubusercontent.com
	JWKS     string              `yaml:"jwks"`     // URL of its keys, if it serves no discovery document
	Audience string              `yaml:"audience"` // aud its tokens must have, default the portal's /mcp URL
	Claims   map[string][]string `yaml:"claims"`   // what the token must say: by claim (dotted path) patterns of which one must match
	Groups   []string            `yaml:"groups"`   // groups the machine counts as a member of
	Servers  []string            `yaml:"servers"`  // server ids it may reach; empty: as its groups allow
	Tools    []string            `yaml:"tools"`    // globs "server/tool"; empty: all of its servers
}

// MayRegister reports whether clients may register themselves.
func (c Clients) MayRegister() bool { return c.Register == nil || *c.Register }

// MayPublish reports whether clients may be known by a metadata document.
func (c Clients) MayPublish() bool { return c.MetadataDocuments == nil || *c.MetadataDocuments }

// ServiceToken is a machine's credential. Only its hash is in the file.
type ServiceToken struct {
	ID      string    `yaml:"id"`      // principal is "svc:<id>"
	Hash    string    `yaml:"hash"`    // "sha256:" + hex of the whole token
	Groups  []string  `yaml:"groups"`  // groups the machine counts as a member of
	Servers []string  `yaml:"servers"` // server ids it may reach; empty: as its groups allow
	Tools   []string  `yaml:"tools"`   // globs "server/tool"; empty: all of its servers
	From    []string  `yaml:"from"`    // networks it may be used from, e.g. 10.1.0.0/16; empty: any
	Expires time.Time `yaml:"expires"` // zero: never

	PreviousHash  string    `yaml:"previous_hash"`  // of the token before, while machines change over; made by mcp-portal token --rotate
	PreviousUntil time.Time `yaml:"previous_until"` // until when that one works
}

// Server is one upstream: an MCP server at URL, one that the portal starts with
// Command, or a plain HTTP API that OpenAPI describes.
type Server struct {
	ID          string `yaml:"-"`           // key in the servers map
	Title       string `yaml:"title"`       // shown to people instead of the id
	Description string `yaml:"description"` // what it is for; shown by portal_query_tools
	Enabled     *bool  `yaml:"enabled"`     // default true
	Prefix      *bool  `yaml:"prefix"`      // its id before the names of its tools and prompts, default true; false only for the only server of the file

	URL       string            `yaml:"url"`       // of a remote server; either this or command
	Transport string            `yaml:"transport"` // "auto" (default), "streamable-http", "sse", "stdio"
	Headers   map[string]Secret `yaml:"headers"`   // sent with every request
	Query     map[string]Secret `yaml:"query"`     // with openapi: parameters in the query of every request, for APIs that take their key there; no argument can set them, and they are taken out of answers
	Bearer    Secret            `yaml:"bearer"`    // Authorization: Bearer …
	Auth      ServerAuth        `yaml:"auth"`

	OpenAPI    string     `yaml:"openapi"`    // an HTTP API as server: URL or file of its OpenAPI document (3.x or Swagger 2.0, JSON or YAML); url is then the address of the API, by default the one in the document
	Operations Operations `yaml:"operations"` // of the document

	Command  []string          `yaml:"command"`  // argv of a stdio server
	Env      map[string]Secret `yaml:"env"`      // the child's environment besides PATH, HOME, LANG, TMPDIR
	Dir      string            `yaml:"dir"`      // working directory
	Sessions string            `yaml:"sessions"` // "session" (default): an upstream session for each session of each user; "user": one for all sessions of a user; "shared": one for all

	ConnectTimeout time.Duration `yaml:"connect_timeout"` // how long connecting may take, default limits.connect_timeout
	CallTimeout    time.Duration `yaml:"call_timeout"`    // idle deadline of a call, default limits.call_timeout
	CallCeiling    time.Duration `yaml:"call_ceiling"`    // longest time of a call, default limits.call_ceiling

	TrustAnnotations bool                  `yaml:"trust_annotations"` // its hints may loosen the guard
	Labels           []string              `yaml:"labels"`            // what flows through it: "private", "untrusted", "external"; [] says none of them; absent: guard.unlabelled
	Groups           []string              `yaml:"groups"`            // who may use it; empty: everyone signed in
	DefaultDisabled  bool                  `yaml:"default_disabled"`  // only tools listed below with enabled: true
	Pin              string                `yaml:"pin"`               // "off", "warn" or "review", default catalog.pin
	Tools            map[string]ServerTool `yaml:"tools"`             // by original tool name
}

// Operations says which operations of an OpenAPI document are tools. A pattern
// is METHOD /path, /path, tag:NAME or id:OPERATION, with * for any characters.
type Operations struct {
	Include    []string      `yaml:"include"`     // patterns such as "GET /zones/*", "tag:DNS*", "id:zones-*"; empty: all
	Exclude    []string      `yaml:"exclude"`     // patterns; wins over include
	Refresh    time.Duration `yaml:"refresh"`     // how often the document is read again, default 1h; a file whenever it has changed
	AnyRequest bool          `yaml:"any_request"` // adds the tool any_request, for paths that the document does not have; class destructive unless tools says otherwise
}

// ServerAuth is how the portal signs in at a remote server that wants OAuth. A
// server with a fixed token needs none of it: see bearer and headers.
type ServerAuth struct {
	Type         string   `yaml:"type"`               // "none" (default), "oauth" (a person signs in), "client_credentials", "token_exchange" (RFC 8693), "id_jag" (the IdP vouches for the user)
	OnBehalf     bool     `yaml:"on_behalf"`          // oauth: every user signs in with an account of their own; false: an admin signs in once, for all
	Catalog      string   `yaml:"catalog"`            // who sees the list that the server gives to one user: "user" (default), that user; "shared", everyone who may use the server
	Issuer       string   `yaml:"issuer"`             // authorization server; default the one that the server names
	ClientID     string   `yaml:"client_id"`          // client registered beforehand; default: the portal presents its metadata document, or registers itself
	ClientSecret Secret   `yaml:"client_secret"`      // of client_id
	PrivateKey   Secret   `yaml:"private_key"`        // in place of client_secret: key in PEM with which the portal proves itself (private_key_jwt, RFC 7523); without client_id it is known by a metadata document that names the key
	PrivateKeyID string   `yaml:"private_key_id"`     // kid of private_key; default its thumbprint (RFC 7638)
	AssertionAud string   `yaml:"assertion_audience"` // whom a proof by private_key names: "issuer" (default), "token_endpoint"
	Scopes       []string `yaml:"scopes"`             // asked for; default what the server asks for
	Resource     string   `yaml:"resource"`           // resource parameter (RFC 8707): "auto" (default) names the server, "omit" sends none, else this URI
	Audience     string   `yaml:"audience"`           // token_exchange: audience asked for; default none, the resource is named
	Subject      string   `yaml:"subject"`            // token_exchange: which token of the user is exchanged, "access_token" (default), "id_token"
}

// Types of ServerAuth.
const (
	AuthNone              = "none"
	AuthOAuth             = "oauth"
	AuthClientCredentials = "client_credentials"
	AuthTokenExchange     = "token_exchange"
	AuthIDJAG             = "id_jag"
)

// Used reports whether requests need a token that the portal gets by OAuth.
func (a ServerAuth) Used() bool { return a.Type != "" && a.Type != AuthNone }

// Interactive reports whether a person has to sign in at the server.
func (a ServerAuth) Interactive() bool { return a.Type == AuthOAuth }

// PerUser reports whether calls are made with a token of the user's own, so
// that machines, which are nobody's, cannot make them.
func (a ServerAuth) PerUser() bool {
	return a.Type == AuthOAuth && a.OnBehalf || a.FromIDP()
}

// FromIDP reports whether the token is made from one of the company IdP.
func (a ServerAuth) FromIDP() bool { return a.Type == AuthTokenExchange || a.Type == AuthIDJAG }

// IsEnabled reports whether the server is switched on.
func (s Server) IsEnabled() bool { return s.Enabled == nil || *s.Enabled }

// HasPrefix reports whether clients see the server's id before the names of
// its tools and prompts.
func (s Server) HasPrefix() bool { return s.Prefix == nil || *s.Prefix }

// ServerTool is what the admin says about one tool of a server.
type ServerTool struct {
	Enabled *bool       `yaml:"enabled"` // default true, with default_disabled false
	Class   string      `yaml:"class"`   // "read", "write", "destructive": overrides every other source; "external" is a write that leaves the company
	Classes []ToolClass `yaml:"classes"` // for a tool that does many things: the first line that holds gives the class of a call; without one it is class
	Labels  []string    `yaml:"labels"`  // instead of those of the server: "private", "untrusted", "external"; [] says none of them
	Groups  []string    `yaml:"groups"`  // who may use it, besides the server's groups
	Preview Companion   `yaml:"preview"` // read beforehand for a plan, so that its reviewer sees what is there; compared again before the plan is applied
	Undo    Companion   `yaml:"undo"`    // call that takes back what this one did; the page of an applied plan offers it
}

// ToolClass is the class of some calls of a tool.
type ToolClass struct {
	Class string `yaml:"class"` // as class of the tool
	When  string `yaml:"when"`  // CEL condition over args, e.g. args.action == "list"; one that cannot be judged makes the call destructive
}

// Companion is a call of another tool of the same server that is made from a
// call: to look beforehand, or to take it back.
type Companion struct {
	With string            `yaml:"with"` // original name of the tool
	Args map[string]string `yaml:"args"` // its arguments: args.x of the call, before.x of its preview, result.x of its answer, 'text', or "5", "true"
}

// Guard is the policy of WriteGuard. Rules are tried in order, first match
// wins; what no rule matches falls to the preset.
type Guard struct {
	Preset          string        `yaml:"preset"`           // "careful" (default), "read-only", "open"
	Observe         bool          `yaml:"observe"`          // only log what rules and filters would do; every call runs
	Rules           []Rule        `yaml:"rules"`            // tried in order, the first that matches decides
	Unlabelled      []string      `yaml:"unlabelled"`       // what servers without labels of their own have, default private untrusted (both)
	Filters         []Filter      `yaml:"filters"`          // look into arguments and results
	ApprovalExpires time.Duration `yaml:"approval_expires"` // how long an approval may be answered and then used, default 15m
	PlanExpires     time.Duration `yaml:"plan_expires"`     // how long a plan may be decided and then applied, default 1h
	AskTimeout      time.Duration `yaml:"ask_timeout"`      // how long a call waits for the person in the client, default 5m
	Webhook         Webhook       `yaml:"webhook"`          // where approvals and plans are announced, e.g. a chat
}

// Webhook is an address that is told of approvals: who asks for what, and where
// to answer. It gets no arguments of calls.
type Webhook struct {
	URL    Secret   `yaml:"url"`    // http or https; addresses of chats hold a secret, so write "${NAME}" or file:/path
	Secret Secret   `yaml:"secret"` // key of the signature (HMAC-SHA-256)
	Events []string `yaml:"events"` // "requested", "decided"; empty: both
}

// Rule matches calls. Empty lists match everything.
type Rule struct {
	Name      string    `yaml:"name"`      // shown where the rule decided; default its number
	Servers   []string  `yaml:"servers"`   // server id globs
	Tools     []string  `yaml:"tools"`     // original tool name globs
	Class     []string  `yaml:"class"`     // classes of the tool: read, write, destructive; external: whatever else it is, it sends data out
	Groups    []string  `yaml:"groups"`    // of the caller; one is enough
	Users     []string  `yaml:"users"`     // principals, e.g. svc:ci-deploy
	Client    []string  `yaml:"client"`    // globs on name/version, as the client says of itself
	Mode      []string  `yaml:"mode"`      // "direct", "code"
	When      string    `yaml:"when"`      // CEL condition over args, user, tool, server, client, mode and run
	Action    string    `yaml:"action"`    // "allow", "deny", "approve", "plan"
	Budget    Budget    `yaml:"budget"`    // how much of it; what is beyond is refused
	Approvers Approvers `yaml:"approvers"` // who answers; default the user whose agent asks
	Via       string    `yaml:"via"`       // where the answer may come from: "any" (default), "web" (the portal's page), "client" (the client's form)
	Grant     int       `yaml:"grant"`     // an approver may release up to so many calls of the tool in one run; default 0: one approval, one call
	Reason    string    `yaml:"reason"`    // told to the agent when refused or asked
}

// Budget limits the calls that a rule lets through. Zero: no limit.
type Budget struct {
	PerMinute int `yaml:"per_minute"` // calls of one user in any minute, on all replicas together
	PerHour   int `yaml:"per_hour"`   // calls of one user in any hour, on all replicas together
	PerRun    int `yaml:"per_run"`    // calls of one run of code
	Items     int `yaml:"items"`      // length of the longest list in the arguments of a call
}

// Approvers are the people who may answer, by group or one by one.
type Approvers struct {
	Groups    []string `yaml:"groups"`    // members of any of them
	Users     []string `yaml:"users"`     // principal ids or e-mail addresses
	Requester bool     `yaml:"requester"` // also the user whose agent asks; default false
}

// Filter looks into what goes to servers and what comes back. All filters that
// match a call apply, in order.
type Filter struct {
	Name    string   `yaml:"name"`    // shown where it acted; default its number
	Servers []string `yaml:"servers"` // server id globs; empty: all
	Tools   []string `yaml:"tools"`   // original tool name globs; empty: all, and prompts and resources
	In      []string `yaml:"in"`      // "arguments", "results"; empty: both
	Detect  []string `yaml:"detect"`  // "secrets" (tokens and passwords), "keys" (private keys), "cards" (payment cards)
	Pattern string   `yaml:"pattern"` // a regular expression (RE2) of your own
	Action  string   `yaml:"action"`  // "block", "redact"
}

// Store is where shared state lives. At most one of Redis and File is set;
// neither: a file portal.db beside the configuration.
type Store struct {
	Redis  Secret `yaml:"redis"`  // redis:// or rediss:// URL
	File   string `yaml:"file"`   // path of the embedded store
	Prefix string `yaml:"prefix"` // key prefix in Redis, default "mcp-portal:"
}

// Audit says where the audit lines go.
type Audit struct {
	File      string `yaml:"file"`      // path; "stdout" and "stderr" are streams; empty: audit.jsonl beside the configuration
	Arguments bool   `yaml:"arguments"` // also write argument values (off: never)
}

// Code configures portal_execute and the code modes.
type Code struct {
	Mode          string        `yaml:"mode"`            // "opt_in" (default), "off", "default_on", "enforced"
	Workers       int           `yaml:"workers"`         // warm sandbox processes, default 2
	MaxWorkers    int           `yaml:"max_workers"`     // live sandbox processes, default 8
	Reuse         string        `yaml:"reuse"`           // "same-user" (default), "never"
	Require       []string      `yaml:"require"`         // layers of the sandbox without which no code is run: "seccomp", "landlock", "rlimits", …
	WallTime      time.Duration `yaml:"wall_time"`       // how long a run may take, default 30s; time waiting for a person does not count
	CPUTime       time.Duration `yaml:"cpu_time"`        // processor time of a run, default 5s
	MemoryMB      int           `yaml:"memory_mb"`       // memory of a run in MB, default 192
	MaxCalls      int           `yaml:"max_calls"`       // calls of tools in one run, default 1000
	Parallel      int           `yaml:"parallel"`        // calls at once, default 8
	MaxSource     int           `yaml:"max_source"`      // bytes, default 131072
	MaxCallResult int           `yaml:"max_call_result"` // bytes of one tool result into a script, default 4194304
	MaxArguments  int           `yaml:"max_arguments"`   // bytes of the arguments of one call from a script, default 1048576
	MaxValue      int           `yaml:"max_value"`       // bytes of what a script returns, from which the answer is cut, default 4194304
	MaxContent    int           `yaml:"max_content"`     // bytes of images, sounds and resources that a script returns, default 4194304
	MaxLogs       int           `yaml:"max_logs"`        // bytes of console output kept, default 16384
	ResultTokens  int           `yaml:"result_tokens"`   // budget of what goes back to the model, estimated tokens, default 6000
	RunsPerUser   int           `yaml:"runs_per_user"`   // at once, default 4
	QueuePerUser  int           `yaml:"queue_per_user"`  // waiting beyond that, default 16
	PausedPerUser int           `yaml:"paused_per_user"` // runs that wait for approvals beside runs_per_user, default 8
	PausedInAll   int           `yaml:"paused_in_all"`   // the same of all users, each a sandbox process beside max_workers, default 32
	PausedFor     time.Duration `yaml:"paused_for"`      // how long a run that waits for an approval keeps its sandbox process, default 15m; after it the run is kept in the store for a day
}

// Catalog configures names and refreshing of what upstreams offer.
type Catalog struct {
	Poll    time.Duration `yaml:"poll"`     // how often servers are asked for their lists even if they report no change, default 5m
	NameMax int           `yaml:"name_max"` // length limit of outward names, 40 to 64, default 64
	Pin     string        `yaml:"pin"`      // when a server changes the definition of a tool: "off"; "warn" (default), say so; "review", hold the tool back until an admin releases it
}

// Limits are ceilings of the relay.
type Limits struct {
	ConnectTimeout time.Duration `yaml:"connect_timeout"` // how long connecting to a server may take, default 20s
	CallTimeout    time.Duration `yaml:"call_timeout"`    // how long a call may go without a sign of life of its server, such as progress; default 60s
	CallCeiling    time.Duration `yaml:"call_ceiling"`    // how long a call may take however lively, default 15m
	Stall          time.Duration `yaml:"stall"`           // how long a client may take nothing of what it is sent, default 2m
	Body           int64         `yaml:"body"`            // bytes of one request from a client, default 4194304
	Message        int64         `yaml:"message"`         // bytes of one message from an upstream, default 33554432
	CallsPerUser   int           `yaml:"calls_per_user"`  // requests of one user under way at once, default 64
	Sessions       int           `yaml:"sessions"`        // 2025 sessions per user, default 100
	SessionIdle    time.Duration `yaml:"session_idle"`    // how long a 2025 session lives without a request under way or a stream open, default 24h
	Drain          time.Duration `yaml:"drain"`           // how long calls under way may take at shutdown, default 10s
}

// Log configures the program's own log on standard error.
type Log struct {
	Level  string `yaml:"level"`  // "debug", "info" (default), "warn", "error"
	Format string `yaml:"format"` // "text" (default), "json"
}

// Secret is a string that never prints itself: String, GoString, MarshalJSON,
// MarshalYAML and slog show "[redacted]". Reveal gives the value.
type Secret string

// Reveal returns the secret value. Only auth, upstreams and store call it.
func (s Secret) Reveal() string { return string(s) }
