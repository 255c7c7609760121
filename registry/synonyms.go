package registry

import (
	"strings"
	"sync"
)

// synonymGroups are words that stand for nearly the same in tool names and in
// what people ask for. A query word also finds the others of its groups, for
// less. Groups are small on purpose: a wide one finds everything.
const synonymGroups = `
create add new make insert open provision register
create launch spin start set
create write generate
send post deliver publish
delete remove destroy drop erase purge discard
cancel stop abort terminate kill end
get fetch read retrieve show view display see open
get download pull export
list enumerate all show browse
search find query lookup look locate discover
update edit modify change patch alter set adjust rename
upload put attach push
run execute invoke trigger start launch
schedule plan book
reply respond answer comment
comment note remark
copy duplicate clone fork
move transfer relocate
merge combine join
enable activate turn on
disable deactivate off
restart reboot reset
approve accept confirm
assign allocate give
share grant invite permit allow
permission access right role
subscribe follow watch
close resolve finish complete
check verify validate test inspect
log trace
history log record past
undo revert restore roll rollback
compare diff difference
message sms text mail chat
email mail inbox message
issue ticket bug task
task todo card reminder
error exception crash failure problem bug
alert alarm incident notification
repository repo project codebase
pull merge pr mr request
branch fork
file document attachment
folder directory
customer client buyer account
user person member people account who
team group
invoice bill
payment charge pay money
refund reimburse money
price cost fee
subscription plan recurring
order purchase
product item
coupon discount voucher promo
database db
org organization organisation company
dir directory folder
msg message
info information detail
table collection sheet
row record entry
column field
document record
schema structure
index key
query sql statement
event meeting appointment calendar
server machine vm instance host droplet node
container pod docker
cluster kubernetes k8s
bucket storage space
domain dns
key secret credential token
variable env environment
deploy release ship publish rollout
build compile
pipeline workflow ci job action
page webpage site website url web
scrape crawl extract
screenshot capture picture snapshot image
image picture photo
click press tap
type fill enter input
navigate go visit open
chart graph plot diagram
dashboard panel
metric statistic stats usage number
place location venue shop
address geocode coordinate
direction route path
call phone dial
channel room conversation
label tag
milestone sprint cycle iteration
sprint iteration cycle
contact person
draft unsent
latest recent newest last
news article
documentation docs manual guide reference
backup snapshot dump
volume disk
firewall rule port
balance fund
status state health progress
summary overview
metadata info information detail property
setting configuration config preference option
think reason thought
remember memory knowledge note store save
save store persist keep
`

// synonyms maps the stem of each word to the stems of its group mates.
var synonyms = sync.OnceValue(func() map[string][]string {
	m := map[string][]string{}
	for line := range strings.Lines(synonymGroups) {
		group := strings.Fields(line)
		for i, w := range group {
			for j, v := range group {
				if a, b := stem(w), stem(v); i != j && a != b {
					m[a] = append(m[a], b)
				}
			}
		}
	}
	return m
})
