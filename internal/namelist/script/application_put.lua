-- application_put: registers an application, or changes it, if it is at the revision that the caller
-- saw.
--
-- Guarantee: of several callers that saw the same revision, one wins. Redis refuses the first write
-- when it is out of memory.
--
-- KEYS[1] lists:applications  hash   KEYS[2] lists:requests:<tenant>  hash, for a decision
-- ARGV[1] name   ARGV[2] application, JSON   ARGV[3] revision that the caller saw, 0 for none   ARGV[4] tenant
-- ARGV[5] the most applications of a tenant   ARGV[6] the most applications   ARGV[7] the decision of a request, JSON, or ''
-- Returns {1, revision} done, {3, revision} it is at another one, {5, applications} there are too many,
--   {6, why} the request cannot be approved
-- Redis 7.0. Cost: O(applications) for a new one.
local applications_key, requests_key = KEYS[1], KEYS[2]
local name, text, seen, tenant, own, most, decision = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
-- include lib/clock.lua
-- include lib/decision.lua
local is = redis.call('HGET', applications_key, name)
local revision = is and cjson.decode(is).revision or 0
local refused = undecided(revision)
if refused then return {6, refused} end
if seen ~= revision then return {3, revision} end
if not is then
  local all, of = redis.call('HVALS', applications_key), 0
  for _, other in ipairs(all) do
    if cjson.decode(other).tenant == tenant then of = of + 1 end
  end
  if of >= own then return {5, of} end
  if #all >= most then return {5, #all} end
end
redis.call('HSET', applications_key, name, text)
decided()
return {1, revision + 1}
