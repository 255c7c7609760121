package outbound

import (
	"crypto/x509"
	"net/http/httptest"
)

// roots trusts the certificate of a test server, which is for example.com and
// the loopback addresses.
func roots(srv *httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	return pool
}
