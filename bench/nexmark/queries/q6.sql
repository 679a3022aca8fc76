-- Average closing price by seller: over the last eleven closed auctions of each. (Equal closing times: by auction.)
-- sources: auction bid
CREATE TABLE q6 AS
  SELECT seller, AVG(final) OVER (
    PARTITION BY seller ORDER BY closed, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS average
  FROM (
    SELECT a.id, a.seller, b.price AS final, b.dateTime AS closed,
           ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS rn
    FROM auction a JOIN bid b WITHIN UNBOUNDED ON a.id = b.auction
    WHERE b.dateTime BETWEEN a.dateTime AND a.expires) q
  WHERE rn = 1;

-- answer
SELECT seller, AVG(final) OVER (
  PARTITION BY seller ORDER BY closed, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS average
FROM (
  SELECT a.id, a.seller, b.price AS final, b.dateTime AS closed,
         ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS rn
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.dateTime BETWEEN a.dateTime AND a.expires) q
WHERE rn = 1
