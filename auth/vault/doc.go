// Package vault seals what the portal keeps in its store or hands out and
// nobody else may read or make: refresh tokens, client secrets of upstreams,
// signing keys, client ids that carry their own registration.
//
//	vault.go  Vault: the key ring, from portal.yaml or kept in the store
//	box.go    Box: sealing and opening for one purpose
//
// Envelope: AES-256-GCM with a random nonce under a subkey that HKDF-SHA256
// derives from a ring key for one purpose. The additional data is the purpose
// and the full name of the record, so that a sealed value cannot be moved to
// another user, server or kind of record. The key's id stands before the
// ciphertext; Open says when that key is not the first of the ring any more,
// so that callers seal anew.
package vault
