package codemode

import "testing"

// What scripts ask of toLocaleString and Intl is what English says elsewhere, in
// UTC; what is not known is refused, never ignored.
func TestNumbersAndDatesInEnglish(t *testing.T) {
	p := testPool(t, nil)
	const d = "const d = new Date('2026-01-02T13:04:05.678Z'); return "
	for code, want := range map[string]string{
		"return (1234567.891).toLocaleString()":                                                                 `"1,234,567.891"`,
		"return (1234.5).toLocaleString('en-US', {style: 'currency', currency: 'USD'})":                         `"$1,234.50"`,
		"return (-1234.5).toLocaleString('en-US', {style: 'currency', currency: 'EUR'})":                        `"-€1,234.50"`,
		"return (1234.5).toLocaleString('en-US', {style: 'currency', currency: 'JPY'})":                         `"¥1,235"`,
		"return (1234).toLocaleString('en-US', {style: 'currency', currency: 'USD', maximumFractionDigits: 0})": `"$1,234"`,
		"return (0.256).toLocaleString(undefined, {style: 'percent'})":                                          `"26%"`,
		"return (0.256).toLocaleString(undefined, {style: 'percent', minimumFractionDigits: 1})":                `"25.6%"`,
		"return (1234.5).toLocaleString(undefined, {minimumFractionDigits: 2})":                                 `"1,234.50"`,
		"return [1234, 12345, 999999, 1.5e9, 950].map(n => n.toLocaleString('en', {notation: 'compact'}))":      `["1.2K","12K","1M","1.5B","950"]`,
		"return 12345678901234567890n.toLocaleString()":                                                         `"12,345,678,901,234,567,890"`,
		"return [1234, 5].toLocaleString()":                                                                     `"1,234,5"`,
		"return new Intl.NumberFormat('en-US', {style: 'currency', currency: 'USD'}).format(5)":                 `"$5.00"`,
		"return Intl.NumberFormat().format(1e6)":                                                                `"1,000,000"`,
		"return (7).toLocaleString('en-US', {minimumIntegerDigits: 2})":                                         `"07"`,
		d + "d.toLocaleString()":     `"1/2/2026, 1:04:05 PM"`,
		d + "d.toLocaleDateString()": `"1/2/2026"`,
		d + "d.toLocaleTimeString()": `"1:04:05 PM"`,
		d + "d.toLocaleDateString('en-US', {month: 'short', day: 'numeric'})":                                  `"Jan 2"`,
		d + "d.toLocaleDateString('en-US', {weekday: 'long', year: 'numeric', month: 'long', day: 'numeric'})": `"Friday, January 2, 2026"`,
		d + "d.toLocaleDateString('en-US', {month: 'long', year: 'numeric'})":                                  `"January 2026"`,
		d + "d.toLocaleDateString('en-US', {month: '2-digit', day: '2-digit', year: 'numeric'})":               `"01/02/2026"`,
		d + "d.toLocaleDateString('en-US', {weekday: 'short'})":                                                `"Fri"`,
		d + "d.toLocaleDateString('en-CA')":                                                                    `"2026-01-02"`,
		d + "d.toLocaleDateString('sv-SE')":                                                                    `"2026-01-02"`,
		d + "d.toLocaleString('sv-SE')":                                                                        `"2026-01-02 13:04:05"`,
		d + "d.toLocaleDateString('en-GB')":                                                                    `"02/01/2026"`,
		d + "d.toLocaleTimeString('en-US', {hour: '2-digit', minute: '2-digit', hour12: false})":               `"13:04"`,
		d + "d.toLocaleTimeString([], {hour: 'numeric', minute: '2-digit'})":                                   `"1:04 PM"`,
		d + "d.toLocaleString('en-US', {dateStyle: 'medium', timeStyle: 'short', timeZone: 'UTC'})":            `"Jan 2, 2026, 1:04 PM"`,
		d + "new Intl.DateTimeFormat('en-US', {month: 'short', day: 'numeric', year: 'numeric'}).format(d)":    `"Jan 2, 2026"`,
		d + "new Intl.DateTimeFormat().format(d) + Intl.DateTimeFormat().resolvedOptions().timeZone":           `"1/2/2026UTC"`,
		"return new Date(NaN).toLocaleDateString()":                                                            `"Invalid Date"`,
	} {
		t.Run(code, func(t *testing.T) { wantValue(t, run(t, p, nil, code), want) })
	}
	for code, want := range map[string]string{
		"return (1234.5).toLocaleString('de-DE')":                                        "the locale de-DE is not available here",
		"return (5).toLocaleString('en-US', {style: 'unit', unit: 'mile'})":              "the option unit",
		"return (5).toLocaleString('en-US', {style: 'currency'})":                        "needs currency",
		"return new Date(0).toLocaleString('en-US', {timeZone: 'America/New_York'})":     "the time zone America/New_York is not available here",
		"return new Date(0).toLocaleDateString('en-GB', {month: 'long'})":                "the option month with the locale en-GB",
		"return (1).toLocaleString('en-US', {minimumIntegerDigits: 2 ** 30})":            "minimumIntegerDigits is a number from 1 to 20",
		"return new Date(0).toLocaleDateString('fr-FR')":                                 "the locale fr-FR",
		"return new Intl.DateTimeFormat('en-US', {timeZone: 'Europe/Berlin'}).format(0)": "the time zone Europe/Berlin",
		"return new Intl.RelativeTimeFormat('en').format(-1, 'day')":                     "Intl.RelativeTimeFormat is not available here",
		"return ['b', 'a'].sort(new Intl.Collator('en').compare)":                        "Intl.Collator",
	} {
		t.Run(code, func(t *testing.T) { wantError(t, run(t, p, nil, code), kindException, want) })
	}
}
