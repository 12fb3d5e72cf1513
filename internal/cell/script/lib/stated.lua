-- stated: compares what a node states of itself with its profile. ARGV[STATED..] are the names and
-- values of the profile's other fields.
-- Needs: STATED, call, epoch, max, pool_ids, profile_key
-- Defines: before, equal, moved, names, taken
local names = {}
for i = STATED, #ARGV, 2 do names[#names + 1] = ARGV[i] end
local before = call('HMGET', profile_key, 'epoch', 'status', 'max_concurrency', 'pool_ids', unpack(names))
local taken, moved = before[1] ~= epoch, before[4] ~= pool_ids
local equal = not moved and before[3] == max
for i = 1, #names do equal = equal and before[4 + i] == ARGV[STATED + 2 * i - 1] end
