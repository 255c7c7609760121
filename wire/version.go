package wire

// Protocol versions of MCP, newest first.
const (
	Version20260728 = "2026-07-28"
	Version20251125 = "2025-11-25"
	Version20250618 = "2025-06-18"
	Version20250326 = "2025-03-26"
	Version20241105 = "2024-11-05"
)

// LegacyVersions are those with the initialize handshake and sessions, newest
// first.
func LegacyVersions() []string {
	return []string{Version20251125, Version20250618, Version20250326, Version20241105}
}

// SupportedVersions are all versions that both roles speak, newest first.
func SupportedVersions() []string {
	return append([]string{Version20260728}, LegacyVersions()...)
}

// Modern reports whether a version belongs to the stateless era that began
// with 2026-07-28. Versions are ISO dates, so string order is time order.
func Modern(version string) bool { return version >= Version20260728 }

// Supported reports whether the version is one of SupportedVersions.
func Supported(version string) bool {
	for _, v := range SupportedVersions() {
		if v == version {
			return true
		}
	}
	return false
}
