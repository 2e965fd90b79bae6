// needs: github.com/go-redsync/redsync/v4@v4.8.1 github.com/redis/go-redis/v9@v9.0.2

// Acquires and releases one lock of redsync: REDSYNC URL,URL,... NAME CYCLES.
// Prints the begin and the end of each hold, in nanoseconds of CLOCK_BOOTTIME.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const clockBoottime = 7

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

func main() {
	urls, name := strings.Split(os.Args[1], ","), os.Args[2]
	cycles, err := strconv.Atoi(os.Args[3])
	check(err)
	var masters []redsyncredis.Pool
	for _, url := range urls {
		options, err := redis.ParseURL(url)
		check(err)
		masters = append(masters, goredis.NewPool(redis.NewClient(options)))
	}
	out := bufio.NewWriter(os.Stdout)
	locks := redsync.New(masters...)
	for cycle := 0; cycle < cycles; cycle++ {
		pause := func(int) time.Duration { return time.Duration(1+cycle%5) * time.Millisecond }
		lock := locks.NewMutex(name, redsync.WithExpiry(30*time.Second), redsync.WithTries(1<<30), redsync.WithRetryDelayFunc(pause))
		check(lock.Lock())
		granted := now()
		releasing := now()
		_, err := lock.Unlock()
		check(err)
		fmt.Fprintln(out, granted, releasing)
		check(out.Flush())
		// This lets the other party acquire.
		time.Sleep(time.Millisecond)
	}
}
