// Package speed measures durations for benchmarks, beside what the machine
// needs at that moment for things that every program needs, so that a result
// can be read on another machine. Only tests import it.
package speed

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"
)

// Laps are durations of the same thing done again and again.
type Laps []time.Duration

// At is the duration that the part p of the laps (0 to 1) does not exceed; 0
// without laps.
func (l Laps) At(p float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(l))
	return s[min(len(s)-1, int(p*float64(len(s))))]
}

// Machine is what this machine needs at the moment, in the median.
type Machine struct {
	Loop  time.Duration // SHA-256 of one megabyte: the processor
	Wake  time.Duration // a byte through pipes to another process and back: where the kernel puts it decides, 7 or 45 µs here
	Spawn time.Duration // start of /bin/true until its end
}

var measureOnce = sync.OnceValues(measure)

// Measure measures the machine, once in a process.
func Measure() (Machine, error) { return measureOnce() }

func measure() (Machine, error) {
	var m Machine
	var loops, wakes, spawns Laps
	block := make([]byte, 1<<20)
	for range 30 {
		start := time.Now()
		block[0] ^= sha256.Sum256(block)[0]
		loops = append(loops, time.Since(start))
	}
	echo := exec.Command("cat")
	in, err := echo.StdinPipe()
	if err != nil {
		return m, fmt.Errorf("measure wake-ups: %w", err)
	}
	out, err := echo.StdoutPipe()
	if err != nil {
		return m, fmt.Errorf("measure wake-ups: %w", err)
	}
	if err := echo.Start(); err != nil {
		return m, fmt.Errorf("measure wake-ups with cat: %w", err)
	}
	var b [1]byte
	for range 1000 {
		start := time.Now()
		if _, err = in.Write(b[:]); err == nil {
			_, err = io.ReadFull(out, b[:])
		}
		if err != nil {
			return m, fmt.Errorf("measure wake-ups: %w", err)
		}
		wakes = append(wakes, time.Since(start))
	}
	if err := in.Close(); err != nil {
		return m, fmt.Errorf("measure wake-ups: %w", err)
	}
	if err := echo.Wait(); err != nil {
		return m, fmt.Errorf("measure wake-ups: %w", err)
	}
	for range 30 {
		start := time.Now()
		if err := exec.Command("true").Run(); err != nil {
			return m, fmt.Errorf("measure starts of processes: %w", err)
		}
		spawns = append(spawns, time.Since(start))
	}
	return Machine{loops.At(.5), wakes.At(.5), spawns.At(.5)}, nil
}

// Report adds what the laps were to a benchmark: the median and the slowest
// tenth in µs, the median as a multiple of Machine.Loop, and the target if there
// is one.
func Report(b *testing.B, l Laps, target time.Duration) {
	b.Helper()
	m, err := Measure()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op") // the laps say it
	b.ReportMetric(micros(l.At(.5)), "p50-µs")
	b.ReportMetric(micros(l.At(.9)), "p90-µs")
	b.ReportMetric(float64(l.At(.5))/float64(m.Loop), "loops")
	if target > 0 {
		b.ReportMetric(micros(target), "target-µs")
	}
}

// ReportMachine is a benchmark of the machine itself.
func ReportMachine(b *testing.B) {
	m, err := Measure()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(micros(m.Loop), "loop-µs")
	b.ReportMetric(micros(m.Wake), "wake-µs")
	b.ReportMetric(micros(m.Spawn), "spawn-µs")
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
