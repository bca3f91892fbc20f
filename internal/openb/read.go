package openb

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Read reads a node list and a pod list of the trace: CSV, unpacked where the name ends in .gz.
func Read(nodes, pods string, demand float64) (*Trace, error) {
	t := &Trace{Name: nameOf(pods), Demand: demand}
	err := readCSV(nodes, func(r row) {
		t.Machines = append(t.Machines, Machine{
			Name: r.text("sn"), MilliCPU: r.number("cpu_milli"), MemoryMiB: r.number("memory_mib"), GPUs: int(r.number("gpu")),
			Model: r.optional("model"),
		})
	})
	if err != nil {
		return nil, err
	}
	err = readCSV(pods, func(r row) {
		t.Pods = append(t.Pods, Pod{
			MilliCPU: r.number("cpu_milli"), MemoryMiB: r.number("memory_mib"),
			GPUs: int(r.number("num_gpu")), ShareMilli: r.number("gpu_milli"), Models: r.optional("gpu_spec"),
		})
	})
	return t, err
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
