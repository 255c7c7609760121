package store

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// checkLength finds a store file that was cut short, for example by a full
// disk while it was copied. bbolt maps the file into memory and the process
// would die from a fault, which nothing can catch, when it touches the missing
// part. Anything else that is wrong is left to bbolt to say.
//
// The layout is bbolt's own: two meta pages at the start, each a page header
// of 16 bytes and then magic, version, page size and flags of 4 bytes, the
// root bucket of 16, the freelist page, the number of pages in use, the
// transaction id and an FNV-1a checksum of 8 bytes each.
func checkLength(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // also when it does not exist yet; opening says what is wrong
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return nil
	}
	const header, size, magic = 16, 64, 0xED0CDAED
	var newest, pages, pageSize uint64
	found := false
	meta := func(offset int64) bool {
		m := make([]byte, size)
		if _, err := f.ReadAt(m, offset+header); err != nil && err != io.EOF {
			return false
		}
		sum := fnv.New64a()
		sum.Write(m[:56])
		order := binary.NativeEndian
		if order.Uint32(m) != magic || order.Uint64(m[56:]) != sum.Sum64() {
			return false
		}
		if tx := order.Uint64(m[48:]); !found || tx > newest {
			newest, pages, pageSize = tx, order.Uint64(m[40:]), uint64(order.Uint32(m[8:]))
		}
		found = true
		return true
	}
	if meta(0) {
		meta(int64(pageSize))
	} else {
		for p := int64(1024); p <= 64<<10 && !meta(p); p *= 2 {
		}
	}
	if found && pages*pageSize > uint64(info.Size()) {
		return fmt.Errorf("it has %d bytes where its contents need %d", info.Size(), pages*pageSize)
	}
	return nil
}
