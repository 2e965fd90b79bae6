// needs: github.com/go-redsync/redsync/v4@v4.8.1 github.com/redis/go-redis/v9@v9.0.2

// The Mutex of redsync on one server: no token, no queue, no renewal. It polls every 50 to 250 ms.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type task struct {
	Do    string `json:"do"`
	Name  string `json:"name"`
	Count int    `json:"count"`
	Names int    `json:"names"`
	Each  int    `json:"each"`
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
		begun := time.Now()
		release(acquire(locks, name))
		took = append(took, time.Since(begun).Nanoseconds())
	}
	return took
}

// Runs the work in this number of goroutines.
func together(count int, work func(int)) {
	var running sync.WaitGroup
	for number := 0; number < count; number++ {
		running.Add(1)
		go func(number int) {
			defer running.Done()
			work(number)
		}(number)
	}
	running.Wait()
}

func run(locks *redsync.Redsync, work task) []int64 {
	switch work.Do {
	case "pairs":
		return pairs(locks, work.Name, work.Count)
	case "names":
		begun := time.Now()
		together(work.Names, func(name int) {
			pairs(locks, fmt.Sprintf("n%d", name), work.Each)
		})
		return []int64{time.Since(begun).Nanoseconds()}
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
