-- Monitor new users: people who registered and opened an auction in the same 10 s window.
-- sources: person auction
CREATE TABLE q8 AS
  SELECT DISTINCT p.id AS id, p.name, p.window_start AS window_start
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) p
  JOIN TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) a WITHIN 10 SECONDS
  ON p.id = a.seller AND p.window_start = a.window_start;

-- answer
SELECT DISTINCT p.id AS id, p.name, p.window_start AS window_start
FROM hops(person, 10000, 10000) p JOIN hops(auction, 10000, 10000) a
ON p.id = a.seller AND p.window_start = a.window_start
