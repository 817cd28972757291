-- Makes strings, tables and closures, keeps some, says "ready" and waits for the end of its input.
local rounds = tonumber(arg[1]) or error("rounds")
local kept
for round = 1, rounds do
    kept = {}
    for i = 1, 20000 do
        local row = { id = i, name = "row " .. i, tags = { "a" .. i % 100, "b" .. i % 1000 } }
        row.get = function() return row.name end
        kept[#kept + 1] = row
    end
end
print("ready " .. #kept)
io.stdout:flush()
io.read("a")
