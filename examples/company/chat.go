package company

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const channelsPage = 10

// channelsList is newest first, so that the well-known channels, which were
// made first, are not on page one.
func channelsList(r *run, a struct {
	Cursor string `json:"cursor"`
}) (any, error) {
	channels := slices.Clone(r.Chat.Channels)
	slices.Reverse(channels)
	page, next, err := cut(channels, channelsPage, "cursor", a.Cursor, "channels_list")
	if err != nil {
		return nil, err
	}
	return struct {
		Channels   []Channel `json:"channels"`
		NextCursor string    `json:"nextCursor,omitempty"`
	}{page, next}, nil
}

func messagePost(r *run, a struct {
	ChannelID string `json:"channel_id"`
	Text      string `json:"text"`
}) (any, error) {
	if !slices.ContainsFunc(r.Chat.Channels, func(c Channel) bool { return c.ID == a.ChannelID }) {
		return nil, fmt.Errorf("no channel has the id %q (a name is none); channels_list has the ids", a.ChannelID)
	}
	if strings.TrimSpace(a.Text) == "" {
		return nil, errors.New("text must not be empty")
	}
	message := Message{ID: r.nextID("m_"), ChannelID: a.ChannelID, Text: a.Text, TS: Now().Format(time.RFC3339)}
	r.Chat.Messages = append(r.Chat.Messages, message)
	return message, nil
}
