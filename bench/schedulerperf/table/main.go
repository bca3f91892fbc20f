// Command table reads the output of the benchmark on its standard input and prints a
// Markdown table for upstream's own gangs and our plugins: pods per second, which
// upstream counts from the first pod that is bound, and the time until all are.
package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// Benchmark lines: BenchmarkPerfScheduling/native#01/Gangs/500Nodes/1000x3-2  1  92.88 SchedulingThroughput/Average ...
var (
	name   = regexp.MustCompile(`^BenchmarkPerfScheduling/(\w+)(?:#\d+)?/(\S+?)(?:-\d+)?\s`)
	metric = regexp.MustCompile(`([0-9.e+]+) Scheduling(Throughput/Average|Duration/Duration)`)
)

type result struct{ perSecond, seconds float64 }

func main() {
	results := map[string]map[string]result{}
	var order []string
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		match := name.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		var r result
		for _, m := range metric.FindAllStringSubmatch(lines.Text(), -1) {
			value, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				continue
			}
			if m[2] == "Duration/Duration" {
				r.seconds = value
			} else {
				r.perSecond = value
			}
		}
		if results[match[2]] == nil {
			results[match[2]] = map[string]result{}
			order = append(order, match[2])
		}
		results[match[2]][match[1]] = r
	}
	fmt.Println("| workload | native: pods/s | all, s | gpuplan: pods/s | all, s | ours is, by pods/s | by time |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, workload := range order {
		native, own := results[workload]["native"], results[workload]["gpuplan"]
		fmt.Printf("| %s | %.0f | %.1f | %.0f | %.1f | %.1f× faster | %.1f× faster |\n", workload, native.perSecond, native.seconds,
			own.perSecond, own.seconds, own.perSecond/native.perSecond, native.seconds/own.seconds)
	}
}
