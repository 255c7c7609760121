package config

import "time"

// guardLimits are the limits of the keys that are about what may happen.
func guardLimits() map[string]limit {
	classes := []string{"read", "write", "destructive", "external"}
	labels := []string{"private", "untrusted", "external"}
	return map[string]limit{
		"servers.*.tools.*.class":           {enum: classes},
		"servers.*.tools.*.classes[].class": {enum: classes},
		"servers.*.tools.*.labels":          {enum: labels},
		"servers.*.labels":                  {enum: labels},
		"guard.unlabelled":                  {enum: labels},
		"guard.preset":                      {enum: []string{"careful", "read-only", "open"}},
		"guard.rules[].servers":             {glob: true},
		"guard.rules[].tools":               {glob: true},
		"guard.rules[].class":               {enum: classes},
		"guard.rules[].mode":                {enum: []string{"direct", "code"}},
		"guard.rules[].client":              {glob: true},
		"guard.rules[].action":              {enum: []string{"allow", "deny", "approve", "plan"}},
		"guard.rules[].via":                 {enum: []string{"any", "web", "client"}},
		"guard.rules[].grant":               {max: 1000},
		"guard.rules[].budget.per_minute":   {max: 100000},
		"guard.rules[].budget.per_hour":     {max: 1000000},
		"guard.rules[].budget.per_run":      {max: 100000},
		"guard.rules[].budget.items":        {max: 1000000},
		"guard.filters[].servers":           {glob: true},
		"guard.filters[].tools":             {glob: true},
		"guard.filters[].in":                {enum: []string{"arguments", "results"}},
		"guard.filters[].detect":            {enum: []string{"secrets", "keys", "cards"}},
		"guard.filters[].action":            {enum: []string{"block", "redact"}},
		"guard.approval_expires":            {shortest: time.Second, longest: 30 * day},
		"guard.plan_expires":                {shortest: time.Second, longest: 30 * day},
		"guard.webhook.events":              {enum: []string{"requested", "decided"}},
		"guard.ask_timeout":                 {shortest: time.Second, longest: day},
	}
}
