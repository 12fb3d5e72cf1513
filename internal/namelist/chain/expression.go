package chain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"
)

// functions are the functions that expressions may call. Each takes time and memory in proportion
// to its arguments, and depends on nothing else.
var functions = []string{
	"abs", "ceil", "float", "floor", "hasPrefix", "hasSuffix", "indexOf", "int", "lastIndexOf", "len", "lower", "max",
	"min", "round", "trim", "trimPrefix", "trimSuffix", "upper",
}

// operators are the operators that expressions may use between two values. Missing are ranges and
// "??".
var operators = []string{
	"or", "||", "and", "&&", "==", "!=", "<", ">", ">=", "<=", "in", "matches", "contains", "startsWith", "endsWith",
	"+", "-", "*", "/", "%", "**", "^",
}

// expression is a compiled expression. It is safe for concurrent use.
type expression struct {
	whole *program
	// parts is the same expression, in parts with three truths. They decide if an attribute is
	// unknown.
	parts *part
	pool  sync.Pool // of *machine
}

// program is a piece of an expression in bytecode.
type program struct {
	code *vm.Program
	uses []attribute
}

// part is a node of a tree of and, or and not. A leaf has a program.
type part struct {
	op          string // "&&", "||" or "!"; empty for a leaf
	left, right *part
	leaf        *program
}

// machine has the memory of an evaluation.
type machine struct {
	vm  vm.VM
	env map[string]any
}

const whyFailed = "the expression failed"

// holds returns the truth of the expression. If that is Unknown, it also returns the first
// attribute that is unknown, if any, and why.
func (e *expression) holds(s *Subject) (is Truth, attribute, why string) {
	m, _ := e.pool.Get().(*machine)
	if m == nil {
		m = &machine{env: make(map[string]any, len(e.whole.uses))}
	}
	defer func() {
		clear(m.env)
		e.pool.Put(m)
	}()
	for _, a := range e.whole.uses {
		v, whyNot := a.value(s)
		if whyNot != "" {
			if why == "" {
				attribute, why = a.name, whyNot
			}
			continue
		}
		m.env[a.name] = v
	}
	if why == "" {
		if is = m.run(e.whole); is != Unknown {
			return is, "", ""
		}
		why = whyFailed
	}
	return m.parts(e.parts), attribute, why
}

// run runs a program whose attributes are all there.
func (m *machine) run(p *program) Truth {
	got, err := m.vm.Run(p.code, m.env)
	is, ok := got.(bool)
	if err != nil || !ok {
		return Unknown
	}
	return truth(is)
}

// parts returns the truth of a tree by the logic of three values: an operand that decides alone
// decides also if the other is unknown.
func (m *machine) parts(p *part) Truth {
	switch p.op {
	case "!":
		return m.parts(p.left).not()
	case "&&":
		return both(m.parts(p.left), m.parts(p.right))
	case "||":
		return both(m.parts(p.left).not(), m.parts(p.right).not()).not()
	}
	for _, a := range p.leaf.uses {
		if _, there := m.env[a.name]; !there {
			return Unknown
		}
	}
	return m.run(p.leaf)
}

func both(a, b Truth) Truth {
	switch {
	case a == False || b == False:
		return False
	case a == True && b == True:
		return True
	default:
		return Unknown
	}
}

// compileExpression compiles an expression over attributes, which include Key. The error says what
// is wrong, after the name of the field.
func compileExpression(text string, attributes map[string]Type) (*expression, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("is missing, expected an expression such as country == \"DE\" && age >= 18")
	}
	if len(text) > MaxExpression {
		return nil, fmt.Errorf("has %d bytes, expected at most %d", len(text), MaxExpression)
	}
	c := compilation{attributes: attributes}
	cfg := conf.CreateNew()
	for _, option := range c.options() {
		option(cfg)
	}
	for name := range cfg.Disabled {
		delete(cfg.Builtins, name)
	}
	tree, err := parser.ParseWithConfig(text, cfg)
	if err != nil {
		return nil, refused(err)
	}
	if err := c.check(tree.Node); err != nil {
		return nil, err
	}
	e := new(expression)
	if e.whole, err = c.program(text, tree.Node); err == nil {
		e.parts, err = c.parts(tree.Node)
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

type compilation struct{ attributes map[string]Type }

func (c *compilation) options() []expr.Option {
	env := make(map[string]any, len(c.attributes))
	for name, kind := range c.attributes {
		env[name] = map[Type]any{String: "", Integer: 0, Number: 0.0, Boolean: false}[kind]
	}
	options := []expr.Option{expr.Env(env), expr.AsBool(), expr.MaxNodes(MaxNodes), expr.DisableAllBuiltins()}
	for _, name := range functions {
		options = append(options, expr.EnableBuiltin(name))
	}
	return options
}

// program compiles a piece of the expression.
func (c *compilation) program(text string, node ast.Node) (*program, error) {
	code, err := expr.Compile(text, c.options()...)
	if err != nil {
		return nil, refused(err)
	}
	p := &program{code: code}
	walk(node, func(n ast.Node) {
		name, ok := n.(*ast.IdentifierNode)
		if !ok {
			return
		}
		a := attribute{name: name.Value, kind: c.attributes[name.Value]}
		if !slices.Contains(p.uses, a) {
			p.uses = append(p.uses, a)
		}
	})
	return p, nil
}

// parts splits the expression at and, or and not.
func (c *compilation) parts(node ast.Node) (*part, error) {
	var err error
	p := new(part)
	switch n := node.(type) {
	case *ast.UnaryNode:
		if n.Operator == "!" || n.Operator == "not" {
			p.op = "!"
			p.left, err = c.parts(n.Node)
			return p, err
		}
	case *ast.BinaryNode:
		p.op = map[string]string{"&&": "&&", "and": "&&", "||": "||", "or": "||"}[n.Operator]
		if p.op == "" {
			break
		}
		if p.left, err = c.parts(n.Left); err == nil {
			p.right, err = c.parts(n.Right)
		}
		return p, err
	}
	p.leaf, err = c.program(node.String(), node)
	return p, err
}

// check refuses what an expression may not have: variables, loops, ranges, patterns that are not
// fixed, and whatever a later release of the library may bring.
func (c *compilation) check(node ast.Node) (err error) {
	walk(node, func(n ast.Node) {
		if err == nil {
			err = c.checkNode(n)
		}
	})
	return err
}

func (c *compilation) checkNode(node ast.Node) error {
	switch n := node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.StringNode,
		*ast.ArrayNode, *ast.ConditionalNode, *ast.UnaryNode:
		return nil
	case *ast.IdentifierNode:
		if _, known := c.attributes[n.Value]; !known {
			return fmt.Errorf("names the attribute %.64q, which is not one of attributes", n.Value)
		}
		return nil
	case *ast.BuiltinNode:
		if slices.Contains(functions, n.Name) {
			return nil
		}
	case *ast.BinaryNode:
		if !slices.Contains(operators, n.Operator) {
			return fmt.Errorf("uses the operator %q, expected one of %s", n.Operator, strings.Join(operators, " "))
		}
		if _, fixed := n.Right.(*ast.StringNode); n.Operator == "matches" && !fixed {
			return errors.New("matches against a pattern that is no text in quotes")
		}
		return nil
	case *ast.CallNode:
		return fmt.Errorf("calls %.64s, expected one of %s", n.Callee, strings.Join(functions, " "))
	}
	return fmt.Errorf(
		"has %.64s, expected only attributes, texts, numbers, true, false, arrays, operators and functions", node.String(),
	)
}

// walk calls visit with each node that can have attributes below it, from the top.
func walk(node ast.Node, visit func(ast.Node)) {
	visit(node)
	var below []ast.Node
	switch n := node.(type) {
	case *ast.UnaryNode:
		below = []ast.Node{n.Node}
	case *ast.BinaryNode:
		below = []ast.Node{n.Left, n.Right}
	case *ast.ConditionalNode:
		below = []ast.Node{n.Cond, n.Exp1, n.Exp2}
	case *ast.ArrayNode:
		below = n.Nodes
	case *ast.BuiltinNode:
		below = n.Arguments
	}
	for _, n := range below {
		walk(n, visit)
	}
}

// refused returns the library's error in one line.
func refused(err error) error {
	var at *file.Error
	if errors.As(err, &at) {
		return fmt.Errorf("is refused at line %d, column %d: %s", at.Line, at.Column+1, at.Message)
	}
	return fmt.Errorf("is refused: %s", strings.ReplaceAll(err.Error(), "\n", " "))
}
