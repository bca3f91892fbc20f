package main

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// machine is a line of a node list.
type machine struct {
	name               string
	milliCPU, memoryMB int64
	gpus               int
	model              string
}

// pod is a line of a pod list. A whole GPU is 1000 milli.
type pod struct {
	milliCPU, memoryMB int64
	wholeGPUs          int
	shareMilli         int64
	// models are the GPU models on which the pod may run, joined by "|"; "" for any.
	models string
}

// runsOn reports whether the pod may run on a GPU model.
func (p pod) runsOn(model string) bool {
	return p.models == "" || slices.Contains(strings.Split(p.models, "|"), model)
}

// gpuMilli is what a pod asks for, in thousandths of GPUs.
func (p pod) gpuMilli() int64 { return int64(p.wholeGPUs) * p.shareMilli }

func readNodes(file string) ([]machine, error) {
	var list []machine
	err := readCSV(file, func(r row) {
		list = append(list, machine{
			name: r.text("sn"), milliCPU: r.number("cpu_milli"), memoryMB: r.number("memory_mib"), gpus: int(r.number("gpu")),
			model: r.optional("model"),
		})
	})
	return list, err
}

func readPods(file string) ([]pod, error) {
	var list []pod
	err := readCSV(file, func(r row) {
		list = append(list, pod{
			milliCPU: r.number("cpu_milli"), memoryMB: r.number("memory_mib"),
			wholeGPUs: int(r.number("num_gpu")), shareMilli: r.number("gpu_milli"), models: r.optional("gpu_spec"),
		})
	})
	return list, err
}

// row is a line of a CSV file; the first thing that is wrong with it is kept in err.
type row struct {
	columns map[string]int
	fields  []string
	err     *error
}

func (r row) text(column string) string {
	i, ok := r.columns[column]
	if !ok {
		*r.err = fmt.Errorf("no column %s", column)
		return ""
	}
	return r.fields[i]
}

// optional is "" where the file has no such column.
func (r row) optional(column string) string {
	if i, ok := r.columns[column]; ok {
		return r.fields[i]
	}
	return ""
}

func (r row) number(column string) int64 {
	n, err := strconv.ParseInt(r.text(column), 10, 64)
	if err != nil && *r.err == nil {
		*r.err = fmt.Errorf("column %s: %w", column, err)
	}
	return n
}

func readCSV(file string, each func(row)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read %s: %w", file, err)
		}
	}()
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return err
		}
	}
	lines := csv.NewReader(in)
	header, err := lines.Read()
	if err != nil {
		return err
	}
	columns := map[string]int{}
	for i, name := range header {
		columns[name] = i
	}
	for {
		fields, err := lines.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var bad error
		each(row{columns, fields, &bad})
		if bad != nil {
			return bad
		}
	}
}
