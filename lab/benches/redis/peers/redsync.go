// needs: github.com/go-redsync/redsync/v4@v4.8.1 github.com/redis/go-redis/v9@v9.0.2

// The Mutex of redsync on one server: no token, no queue, no renewal. It polls every 50 to 250 ms.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const clockBoottime = 7

type task struct {
	Do         string `json:"do"`
	Name       string `json:"name"`
	Count      int    `json:"count"`
	Names      int    `json:"names"`
	Each       int    `json:"each"`
	Threads    int    `json:"threads"`
	HoldMicros int64  `json:"hold_micros"`
	Until      int64  `json:"until"`
}

func now() int64 {
	var time syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&time)), 0)
	if errno != 0 {
		panic(errno)
	}
	return time.Nano()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func acquire(locks *redsync.Redsync, name string) *redsync.Mutex {
	lock := locks.NewMutex(name, redsync.WithExpiry(30*time.Second), redsync.WithTries(1<<30))
	check(lock.Lock())
	return lock
}

func release(lock *redsync.Mutex) {
	_, err := lock.Unlock()
	check(err)
}

func pairs(locks *redsync.Redsync, name string, count int) []int64 {
	took := make([]int64, 0, count)
	for pair := 0; pair < count; pair++ {
		begun := now()
		release(acquire(locks, name))
		took = append(took, now()-begun)
	}
	return took
}

func contend(locks *redsync.Redsync, work task) []int64 {
	var moments []int64
	for now() < work.Until {
		moments = append(moments, now())
		lock := acquire(locks, work.Name)
		moments = append(moments, now())
		time.Sleep(time.Duration(work.HoldMicros) * time.Microsecond)
		moments = append(moments, now())
		release(lock)
	}
	return moments
}

// Runs the work in this number of goroutines, and returns all results in one list.
func together(count int, work func(int) []int64) []int64 {
	results := make([][]int64, count)
	var running sync.WaitGroup
	for number := 0; number < count; number++ {
		running.Add(1)
		go func(number int) {
			defer running.Done()
			results[number] = work(number)
		}(number)
	}
	running.Wait()

	all := []int64{}
	for _, result := range results {
		all = append(all, result...)
	}
	return all
}

func run(locks *redsync.Redsync, work task) []int64 {
	switch work.Do {
	case "pairs":
		return pairs(locks, work.Name, work.Count)
	case "names":
		begun := now()
		together(work.Names, func(name int) []int64 {
			return pairs(locks, fmt.Sprintf("n%d", name), work.Each)
		})
		return []int64{now() - begun}
	case "contend":
		return together(work.Threads, func(int) []int64 { return contend(locks, work) })
	default:
		return nil
	}
}

func main() {
	options, err := redis.ParseURL(os.Args[1])
	check(err)
	locks := redsync.New(goredis.NewPool(redis.NewClient(options)))

	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var work task
		check(json.Unmarshal(lines.Bytes(), &work))
		reply, err := json.Marshal(run(locks, work))
		check(err)
		fmt.Println(string(reply))
	}
}
