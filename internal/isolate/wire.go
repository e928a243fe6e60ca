package isolate

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/policies"
	"github.com/coppice-dev/coppice/render"
)

// What the child returns is a sequence of frames: a byte that says what it is, the length
// of the rest as a varint, and the rest. A cluster's frames are frameBegun, an object's
// for each object, which the parent judges while the child goes on, frameJudging if there
// are policies to judge them by, and frameDone. A report's is frameDone alone.
const (
	frameBegun   = 'b'
	frameJudging = 'j'
	// frameObject holds what render.Encoder makes of an object.
	frameObject = 'o'
	// frameDone holds the rest of the answer as JSON.
	frameDone = 'd'
)

// answer is what the child has to say about a cluster besides its objects.
type answer struct {
	Cluster  string               `json:"cluster,omitempty"`
	Findings diag.List            `json:"findings,omitempty"`
	Judged   diag.List            `json:"judged,omitempty"`
	Rules    map[string]diag.Rule `json:"rules,omitempty"`
	Files    []string             `json:"files,omitempty"`
	Report   *policies.Report     `json:"report,omitempty"`
	// Objects is how many of the objects that were sent count: all or none.
	Objects int `json:"objects,omitempty"`

	// begun says that there is no more than that the cluster is begun.
	begun bool
	// judging says that there is no more than that the cluster is evaluated.
	judging bool
	objects []render.Object
	// validated waits for the API server's verdict on the objects. It is nil if nobody
	// wants to know.
	validated func() diag.List
}

// result is the answer to one who asked about a cluster.
func (a answer) result() render.Result {
	r := render.Result{Bundle: render.NewBundle(a.Cluster, a.objects), Findings: a.Findings, Judged: a.Judged, Rules: a.Rules, Files: a.Files}
	if a.validated != nil {
		if validated := a.validated(); len(a.objects) > 0 {
			r.Validated = validated
		}
	}
	return r
}

// sender writes frames. The first error stands for all that follow from it.
type sender struct {
	w       *bufio.Writer
	encoder render.Encoder
	// objects counts those of the cluster that was begun last.
	objects int
	err     error
}

func (s *sender) frame(kind byte, text []byte) {
	head := binary.AppendUvarint([]byte{kind}, uint64(len(text)))
	for _, part := range [][]byte{head, text} {
		if s.err == nil {
			_, s.err = s.w.Write(part)
		}
	}
}

func (s *sender) flush() {
	if s.err == nil {
		s.err = s.w.Flush()
	}
}

func (s *sender) begun() {
	s.objects = 0
	s.frame(frameBegun, nil)
	s.flush()
}

func (s *sender) object(o render.Object) {
	form, err := s.encoder.Encode(o)
	if err != nil && s.err == nil {
		s.err = err
	}
	s.frame(frameObject, form)
	s.objects++
}

func (s *sender) done(a answer) {
	text, err := json.Marshal(a)
	if err != nil && s.err == nil {
		s.err = err
	}
	s.frame(frameDone, text)
	s.flush()
}

var errTooLong = errors.New("the answer is too long")

// read passes a child's answers on. With validator, objects are validated as they come.
func read(in io.Reader, validator func() (*render.Validator, error), pass func(answer)) (err error) {
	r := bufio.NewReaderSize(in, 64<<10)
	var decoder render.Decoder
	var a answer
	var v *render.Validator
	var text []byte
	defer func() {
		if v != nil {
			v.Findings()
		}
	}()
	for size := 0; ; {
		kind, n, err := readHead(r)
		if size += n; err == nil && size > answerLimit {
			return errTooLong
		}
		if err == nil {
			text = append(text[:0], make([]byte, n)...)
			_, err = io.ReadFull(r, text)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			// What a killed child had begun to write says nothing.
			return nil
		case err != nil:
			return err
		}
		switch kind {
		case frameBegun:
			size = 0
			pass(answer{begun: true})
			if validator != nil && v == nil {
				if v, err = validator(); err != nil {
					return err
				}
			}
		case frameJudging:
			pass(answer{judging: true})
		case frameObject:
			o, err := decoder.Decode(text)
			if err != nil {
				return err
			}
			a.objects = append(a.objects, o)
			if v != nil {
				v.Add(o)
			}
		case frameDone:
			if err := json.Unmarshal(text, &a); err != nil {
				return err
			}
			if v != nil {
				a.validated, v = v.Findings, nil
			}
			if a.Objects != len(a.objects) {
				a.objects = nil
			}
			pass(a)
			a, size = answer{}, 0
		default:
			return fmt.Errorf("a frame of the kind %q", kind)
		}
	}
}

func readHead(r *bufio.Reader) (kind byte, n int, err error) {
	if kind, err = r.ReadByte(); err != nil {
		return 0, 0, err
	}
	size, err := binary.ReadUvarint(r)
	if err == nil && size > answerLimit {
		err = errTooLong
	}
	return kind, int(min(size, answerLimit)), err
}
