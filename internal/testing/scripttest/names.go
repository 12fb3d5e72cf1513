package scripttest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// globals lists the names that Redis gives to scripts.
var globals = []string{
	"redis", "KEYS", "ARGV", "cjson", "cmsgpack", "bit", "struct", "string", "table", "math",
	"assert", "error", "ipairs", "next", "pairs", "pcall", "rawget", "rawset", "select", "setmetatable", "tonumber",
	"tostring", "type", "unpack",
}

// names holds the names in one text, sorted.
type names struct {
	defines  []string // locals of the text itself, not of its functions and blocks
	free     []string // read, but neither defined before nor given by Redis
	assigned []string // assigned to, but not defined before
}

func analyse(t testing.TB, at, text string) names {
	t.Helper()
	chunk, err := parse.Parse(strings.NewReader(text), at)
	if err != nil {
		t.Fatal(err)
	}
	free, assigned := make(map[string]bool), make(map[string]bool)
	top := &scope{names: make(map[string]bool), free: free, assigned: assigned}
	top.block(chunk)
	return names{defines: sorted(top.names), free: sorted(free), assigned: sorted(assigned)}
}

func sorted(set map[string]bool) (out []string) {
	for name := range set {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// scope is one block of Lua while it is read from its beginning to its end.
type scope struct {
	outer          *scope
	names          map[string]bool
	free, assigned map[string]bool // shared by all scopes of a text
}

func (s *scope) inner(defined ...string) *scope {
	in := &scope{outer: s, names: make(map[string]bool), free: s.free, assigned: s.assigned}
	in.define(defined)
	return in
}

func (s *scope) define(names []string) {
	for _, name := range names {
		s.names[name] = true
	}
}

func (s *scope) knows(name string) bool {
	for at := s; at != nil; at = at.outer {
		if at.names[name] {
			return true
		}
	}
	return slices.Contains(globals, name)
}

func (s *scope) block(stmts []ast.Stmt) {
	for _, stmt := range stmts {
		s.stmt(stmt)
	}
}

func (s *scope) stmt(stmt ast.Stmt) {
	switch x := stmt.(type) {
	case *ast.LocalAssignStmt:
		if len(x.Exprs) == 1 && isFunction(x.Exprs[0]) { // it may call itself
			s.define(x.Names)
		}
		s.exprs(x.Exprs)
		s.define(x.Names)
	case *ast.AssignStmt:
		s.exprs(x.Rhs)
		for _, to := range x.Lhs {
			if name, ok := to.(*ast.IdentExpr); ok && !s.knows(name.Value) {
				s.assigned[name.Value] = true
			} else if !ok {
				s.expr(to)
			}
		}
	case *ast.FuncDefStmt:
		if name, ok := x.Name.Func.(*ast.IdentExpr); ok && !s.knows(name.Value) {
			s.assigned[name.Value] = true
		}
		s.expr(x.Func)
	case *ast.DoBlockStmt:
		s.inner().block(x.Stmts)
	case *ast.WhileStmt:
		s.expr(x.Condition)
		s.inner().block(x.Stmts)
	case *ast.RepeatStmt:
		in := s.inner()
		in.block(x.Stmts)
		in.expr(x.Condition)
	case *ast.IfStmt:
		s.expr(x.Condition)
		s.inner().block(x.Then)
		s.inner().block(x.Else)
	case *ast.NumberForStmt:
		s.exprs([]ast.Expr{x.Init, x.Limit, x.Step})
		s.inner(x.Name).block(x.Stmts)
	case *ast.GenericForStmt:
		s.exprs(x.Exprs)
		s.inner(x.Names...).block(x.Stmts)
	case *ast.ReturnStmt:
		s.exprs(x.Exprs)
	case *ast.FuncCallStmt:
		s.expr(x.Expr)
	}
}

func isFunction(e ast.Expr) bool { _, ok := e.(*ast.FunctionExpr); return ok }

func (s *scope) exprs(all []ast.Expr) {
	for _, e := range all {
		s.expr(e)
	}
}

func (s *scope) expr(e ast.Expr) {
	switch x := e.(type) {
	case nil:
	case *ast.IdentExpr:
		if !s.knows(x.Value) {
			s.free[x.Value] = true
		}
	case *ast.FunctionExpr:
		s.inner(x.ParList.Names...).block(x.Stmts)
	case *ast.TableExpr:
		for _, f := range x.Fields {
			s.exprs([]ast.Expr{f.Key, f.Value})
		}
	default: // the others hold expressions and lists of them
		v := reflect.ValueOf(e).Elem()
		for i := range v.NumField() {
			switch part := v.Field(i).Interface().(type) {
			case ast.Expr:
				s.expr(part)
			case []ast.Expr:
				s.exprs(part)
			}
		}
	}
}
