package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// File is the embedded store: one bbolt file, for one process on one machine.
// Every write is on disk before it returns. Publish reaches subscribers in the
// same process only, which is all there is: the file is locked.
type File struct {
	path   string
	db     *bbolt.DB
	hub    *hub
	health *health
	stop   context.CancelFunc
	swept  sync.WaitGroup
	now    func() time.Time
}

// A value is stored as 8 bytes of expiry (Unix milliseconds, big endian, 0 for
// never) and the bytes. expiries holds expiry and key of what expires, so that
// sweeping does not read everything.
var (
	valuesBucket   = []byte("values")
	expiriesBucket = []byte("expiries")
)

const (
	lockWait   = time.Second      // how long a predecessor may take to let go of the file
	sweepEvery = 30 * time.Second // removal of what has expired
	sweepBatch = 1000             // removed per transaction, so that writers are not held up
)

// OpenFile opens or creates the store file at path, mode 0600. A file that
// another process holds, or that is no store, is an error that names it.
func OpenFile(path string, log *slog.Logger) (*File, error) {
	db, err := openBolt(path)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &File{path: path, db: db, hub: newHub(log), health: newHealth("file", log), stop: stop, now: time.Now}
	f.health.work()
	f.swept.Go(func() { f.sweepLoop(ctx) })
	return f, nil
}

func openBolt(path string) (db *bbolt.DB, err error) {
	// bbolt panics on some damaged files instead of returning an error.
	defer func() {
		if r := recover(); r != nil {
			if db != nil {
				_ = db.Close()
			}
			db, err = nil, damaged(path, fmt.Errorf("%v", r))
		}
	}()
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
		return nil, fmt.Errorf("opening the store file %s: it is a directory; set store.file to the path of a file", path)
	}
	if err := checkLength(path); err != nil {
		return nil, damaged(path, err)
	}
	// A fault in the mapped file becomes a panic, and so an error, here.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType})
	switch {
	case err == nil:
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("opening the store file %s: another process holds it; stop that process, or give this one another store.file, or use store.redis for several replicas", path)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("opening the store file %s: its directory %s does not exist; create it or set store.file", path, filepath.Dir(path))
	case errors.Is(err, fs.ErrPermission), isPathError(err):
		return nil, fmt.Errorf("opening the store file %s: %w; let the portal's user write there or set store.file", path, err)
	default:
		return nil, damaged(path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{valuesBucket, expiriesBucket} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		_ = db.Close()
		return nil, damaged(path, err)
	}
	return db, nil
}

func isPathError(err error) bool {
	var pe *fs.PathError
	return errors.As(err, &pe)
}

func damaged(path string, err error) error {
	return fmt.Errorf("opening the store file %s: it is damaged or not a portal store (%w); move it away to start with an empty one, sessions and approvals in it are lost", path, err)
}

// view and update run a transaction and name what failed.
func (f *File) view(op, key string, fn func(values *bbolt.Bucket) error) error {
	err := f.db.View(func(tx *bbolt.Tx) error { return fn(tx.Bucket(valuesBucket)) })
	if err != nil {
		return f.failed(op, key, err)
	}
	return nil
}

// update uses bbolt's batches: writers at the same time share one write to
// disk. fn may run more than once and must set its results anew each time.
func (f *File) update(op, key string, fn func(tx fileTx) error) error {
	err := f.db.Batch(func(tx *bbolt.Tx) error {
		return fn(fileTx{tx.Bucket(valuesBucket), tx.Bucket(expiriesBucket), f.now()})
	})
	if err != nil {
		return f.failed(op, key, err)
	}
	f.health.work()
	return nil
}

func (f *File) failed(op, key string, err error) error {
	if !errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		f.health.fail(fmt.Sprintf("%s in %s: %v", op, f.path, err))
	}
	return fmt.Errorf("store: %s %s in %s: %w: %w", op, kind(key), f.path, ErrUnavailable, err)
}

// fileTx is one write transaction.
type fileTx struct {
	values, expiries *bbolt.Bucket
	now              time.Time
}

// get returns the live value of a key; it is valid only in the transaction.
func (t fileTx) get(key string) ([]byte, bool) { return live(t.values.Get([]byte(key)), t.now) }

func (t fileTx) put(key string, value []byte, ttl time.Duration) error {
	if err := t.remove(key); err != nil {
		return err
	}
	record := make([]byte, 8, 8+len(value))
	if ttl > 0 {
		binary.BigEndian.PutUint64(record, uint64(t.now.UnixMilli()+millis(ttl)))
		if err := t.expiries.Put(append(bytes.Clone(record[:8]), key...), nil); err != nil {
			return err
		}
	}
	return t.values.Put([]byte(key), append(record, value...))
}

func (t fileTx) remove(key string) error {
	record := t.values.Get([]byte(key))
	if record == nil {
		return nil
	}
	if len(record) >= 8 && binary.BigEndian.Uint64(record) != 0 {
		if err := t.expiries.Delete(append(bytes.Clone(record[:8]), key...)); err != nil {
			return err
		}
	}
	return t.values.Delete([]byte(key))
}

// live returns the value of a record unless it has expired.
func live(record []byte, now time.Time) ([]byte, bool) {
	if len(record) < 8 {
		return nil, false
	}
	if at := binary.BigEndian.Uint64(record); at != 0 && uint64(now.UnixMilli()) >= at {
		return nil, false
	}
	return record[8:], true
}

// Get implements Store.
func (f *File) Get(ctx context.Context, key string) (value []byte, ok bool, err error) {
	if err := check(ctx, "get", key, 0); err != nil {
		return nil, false, err
	}
	err = f.view("get", key, func(values *bbolt.Bucket) error {
		v, found := live(values.Get([]byte(key)), f.now())
		if found {
			value, ok = append([]byte{}, v...), true
		}
		return nil
	})
	return value, ok, err
}

// Set implements Store.
func (f *File) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if err := check(ctx, "set", key, ttl); err != nil {
		return err
	}
	return f.update("set", key, func(tx fileTx) error { return tx.put(key, value, ttl) })
}

// Create implements Store.
func (f *File) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error) {
	if err := check(ctx, "create", key, ttl); err != nil {
		return false, err
	}
	var done bool
	err := f.update("create", key, func(tx fileTx) error {
		done = false
		if _, ok := tx.get(key); ok {
			return nil
		}
		done = true
		return tx.put(key, value, ttl)
	})
	return done && err == nil, err
}

// Swap implements Store.
func (f *File) Swap(ctx context.Context, key string, old, new []byte, ttl time.Duration) (bool, error) {
	if err := check(ctx, "swap", key, ttl); err != nil {
		return false, err
	}
	var done bool
	err := f.update("swap", key, func(tx fileTx) error {
		done = false
		if v, ok := tx.get(key); !ok || !bytes.Equal(v, old) {
			return nil
		}
		done = true
		return tx.put(key, new, ttl)
	})
	return done && err == nil, err
}

// Take implements Store.
func (f *File) Take(ctx context.Context, key string) ([]byte, bool, error) {
	if err := check(ctx, "take", key, 0); err != nil {
		return nil, false, err
	}
	var value []byte
	var ok bool
	err := f.update("take", key, func(tx fileTx) error {
		value, ok = nil, false
		v, found := tx.get(key)
		if !found {
			return nil
		}
		value, ok = append([]byte{}, v...), true
		return tx.remove(key)
	})
	if err != nil {
		return nil, false, err
	}
	return value, ok, nil
}

// Delete implements Store.
func (f *File) Delete(ctx context.Context, key string) error {
	if err := check(ctx, "delete", key, 0); err != nil {
		return err
	}
	return f.update("delete", key, func(tx fileTx) error { return tx.remove(key) })
}

// Touch implements Store.
func (f *File) Touch(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	if err := check(ctx, "touch", key, ttl); err != nil {
		return false, err
	}
	var done bool
	err := f.update("touch", key, func(tx fileTx) error {
		v, ok := tx.get(key)
		done = ok
		if !ok {
			return nil
		}
		return tx.put(key, bytes.Clone(v), ttl)
	})
	return done && err == nil, err
}

// Keys implements Store.
func (f *File) Keys(ctx context.Context, prefix string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("store: keys %s: %w", kind(prefix), err)
	}
	keys := []string{}
	err := f.view("keys", prefix, func(values *bbolt.Bucket) error {
		now, c := f.now(), values.Cursor()
		for k, v := c.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, v = c.Next() {
			if _, ok := live(v, now); ok {
				keys = append(keys, string(k))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// Publish implements Store, within this process.
func (f *File) Publish(ctx context.Context, channel string, message []byte) error {
	if err := check(ctx, "publish", channel, 0); err != nil {
		return err
	}
	f.hub.publish(channel, message)
	return nil
}

// Subscribe implements Store, within this process.
func (f *File) Subscribe(ctx context.Context, channel string) (<-chan []byte, error) {
	if err := check(ctx, "subscribe", channel, 0); err != nil {
		return nil, err
	}
	if ch := f.hub.subscribe(ctx, channel); ch != nil {
		return ch, nil
	}
	return nil, fmt.Errorf("store: subscribe %s: %w: the store is closed", channel, ErrUnavailable)
}

// Status implements Store. The file is degraded from a failed write, such as
// on a full disk, until one succeeds.
func (f *File) Status() Status { return f.health.get() }

// Close ends subscriptions and lets go of the file.
func (f *File) Close() error {
	f.stop()
	f.swept.Wait()
	f.hub.close()
	if err := f.db.Close(); err != nil {
		return fmt.Errorf("closing the store file %s: %w", f.path, err)
	}
	return nil
}

// Expiring returns how many keys with an expiry are on disk, including those
// that have expired and are not swept yet.
func (f *File) Expiring() (int, error) {
	var n int
	err := f.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(expiriesBucket).ForEach(func(_, _ []byte) error { n++; return nil })
	})
	if err != nil {
		return 0, f.failed("count", "expiring", err)
	}
	return n, nil
}

func (f *File) sweepLoop(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		for more := true; more && ctx.Err() == nil; {
			n, err := f.sweep()
			more = err == nil && n == sweepBatch
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep removes up to one batch of expired keys and returns how many.
func (f *File) sweep() (int, error) {
	var due []string
	limit := make([]byte, 8)
	binary.BigEndian.PutUint64(limit, uint64(f.now().UnixMilli()))
	expired := func(b *bbolt.Bucket) (keys []string) {
		c := b.Cursor()
		for k, _ := c.First(); k != nil && bytes.Compare(k[:8], limit) <= 0 && len(keys) < sweepBatch; k, _ = c.Next() {
			keys = append(keys, string(k))
		}
		return keys
	}
	// Looking first spares the idle store a write to disk.
	err := f.db.View(func(tx *bbolt.Tx) error { due = expired(tx.Bucket(expiriesBucket)); return nil })
	if err != nil {
		return 0, f.failed("sweep", "expired", err)
	}
	if len(due) == 0 {
		return 0, nil
	}
	err = f.update("sweep", "expired", func(tx fileTx) error {
		due = expired(tx.expiries)
		for _, k := range due {
			record := tx.values.Get([]byte(k[8:]))
			if len(record) >= 8 && string(record[:8]) == k[:8] {
				if err := tx.values.Delete([]byte(k[8:])); err != nil {
					return err
				}
			}
			if err := tx.expiries.Delete([]byte(k)); err != nil {
				return err
			}
		}
		return nil
	})
	return len(due), err
}

var _ Store = (*File)(nil)
