package wire

// LogLevels are the levels of notifications/message, least severe first
// (server/utilities/logging, after RFC 5424).
func LogLevels() []string {
	return []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
}

// LogRank is the place of a level in LogLevels; -1 if it is none.
func LogRank(level string) int {
	for i, l := range LogLevels() {
		if l == level {
			return i
		}
	}
	return -1
}
