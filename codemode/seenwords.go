package codemode

import "strings"

// interfaceWords are words that names of fields are made of everywhere. None of
// them tells anything about anybody.
var interfaceWords = func() map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(`
access account accounts action actions active activity address addresses after age amount amounts archived array assignee assignees at attachment
attachments attribute attributes audio author authors avatar average avg balance before body bottom branch bug by bytes can categories category change
changes channel channels checksum child children city class client clients closed code codes color column columns comment comments commit commits
companies company completed config contact contacts content contents cost count country counts created creator currency current cursor customer
customers data date dates day days default deleted description detail details diff disabled display dns doc docs document documents domain domains
draft due duration edge edges email emails enabled encoding end ended entries entry error errors estimate event events expired expires failed failure
failures family field fields file files filter finished first folder folders format from full given group groups guid has hash height hidden history
hit hits host hosts hour hours href html icon id ids image images inactive index info invalid invoice invoices ip ipv is issue issues item items key
keys kind kinds label labels language last lat latitude left length level levels lifecycle limit line lines link links list lists lng locale locked
log login logs lon longitude mail major match matches max maximum mean media median member members message messages meta metadata method methods
middle milestone milestones millis mime min minimum minor minute minutes modified month more ms name names new next nick node nodes note notes number
numbers object objects offset ok old on open opened option optional options order org organization organizations original owner owners page pages
pagination paging paid parent parents path paths payload payment payments pending people per percent percentage permission permissions person phone
phones plan plans points port position postal prev previous price prices priority private project projects properties property proxied public pull
pulls quantity query rank rate read reason received record records ref reference references refs region rel relation relations repo reporter
repositories repository request requests required response result results revision right role roles root route routes row rows schema scope scopes
score search second seconds secret self sent server servers service services setting settings severity sha signature size sort source stage start
started state states status street subscription subscriptions subtotal success sum summary tag tags target task tasks tax team teams text thread
threads thumbnail ticket tickets tier time times timestamp timezone title to token top total totals ts ttl type types uid unit units unpaid unread
updated uri url urls user username users uuid valid value values version versions video visible void warning warnings week weight width year zip zone
zones
`) {
		m[w] = true
	}
	return m
}()
